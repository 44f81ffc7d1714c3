"""What the objects depend on besides the spec: contents of Secrets and ConfigMaps, as hashes where that is enough."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from moorage_operator.plan import EXTERNAL
from moorage_operator.resource import Resource


@dataclass(frozen=True, slots=True)
class Reference:
    """A Secret or ConfigMap that the spec names."""

    kind: str
    name: str
    key: str | None
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Inputs:
    """``password`` is None while Redis asks for none; ``storage`` is the size that an existing StatefulSet
    was made with (its claim template cannot change); ``external_port`` the port in the external URL."""

    fingerprint: str = ""
    password: str | None = None
    storage: str | None = None
    external_port: int | None = None
    operator_namespace: str = "moorage-system"


def references(resource: Resource) -> list[Reference]:
    """Everything that server and worker pods read, in the order of the spec; generated Secrets are not in it."""
    spec = resource.spec
    found: list[Reference] = []
    for env in spec.env:
        source = env.value_from
        if source and source.secret_key_ref:
            ref = source.secret_key_ref
            found.append(Reference("Secret", ref.name, ref.key, ref.optional))
        if source and source.config_map_key_ref:
            ref = source.config_map_key_ref
            found.append(Reference("ConfigMap", ref.name, ref.key, ref.optional))
    for group in spec.env_from:
        if group.secret_ref:
            found.append(Reference("Secret", group.secret_ref.name, None, group.secret_ref.optional))
        if group.config_map_ref:
            found.append(
                Reference("ConfigMap", group.config_map_ref.name, None, group.config_map_ref.optional)
            )
    keys = [spec.secret_key_ref, spec.redis.state_url_secret_key_ref]
    if spec.redis.mode == "Managed":
        keys.append(spec.redis.auth.secret_key_ref)
    if spec.redis.external is not None:
        keys += [spec.redis.external.url_secret_key_ref, spec.redis.external.ca_secret_key_ref]
    return found + [Reference("Secret", ref.name, ref.key) for ref in keys if ref is not None]


def fingerprint(uid: str, value: Any) -> str:
    """Short hash, keyed by the owner's uid: equal passwords of two owners do not look equal, and no dictionary
    of hashes helps anybody who can only read annotations."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(uid.encode(), text, hashlib.sha256).hexdigest()[:16]


def external_backend(uid: str, url: str) -> tuple[str, int]:
    """The backend's name and port for an external URL. Another password is the same Redis; another host is not.

    Raises ``ValueError`` for what is no Redis URL.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise ValueError("the URL must start with redis:// or rediss:// and name a host")
    port = parts.port or 6379
    where = [parts.scheme, parts.hostname.lower(), port, parts.path.strip("/") or "0"]
    return EXTERNAL + fingerprint(uid, where), port


def managed_url(host: str, password: str | None) -> str:
    """URL of the managed Redis; the password is URL-encoded, which ``$(VAR)`` expansion would not do."""
    return f"redis://:{quote(password, safe='')}@{host}:6379/0" if password else f"redis://{host}:6379/0"


def acl_line(password: str | None) -> str:
    """A line of redis.conf that asks for ``password``; every byte that could end the quotes is escaped."""
    if not password:
        return "# no password\n"
    safe = "".join(chr(b) if chr(b).isalnum() and b < 128 else f"\\x{b:02x}" for b in password.encode())
    return f'requirepass "{safe}"\n'


def encoded(data: dict[str, str]) -> dict[str, str]:
    """``data`` of a Secret. Never ``stringData``: it is write-only, so server-side apply cannot own its keys."""
    return {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}


def decoded(data: dict[str, str] | None) -> dict[str, str]:
    """``data`` of a Secret as text; bytes that are none are kept as replacement characters."""
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in (data or {}).items()}
