"""What may leave the cluster in a report: never a Secret's data, and no password that stands elsewhere. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from moorage_operator.kubectl.cluster import Body

URL_PASSWORD = re.compile(r"([a-z][a-z0-9+.-]*://[^\s:/@]*):[^\s/@]+@")
SECRET_NAME = re.compile(r"pass|secret|token|key|credential|url|dsn", re.IGNORECASE)
"""Names of plain environment variables whose value is not shown."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def text(value: str) -> str:
    """Passwords in URLs are taken out; logs and metrics go through here."""
    return URL_PASSWORD.sub(r"\1:(hidden)@", value)


def body(found: Body, *, contents: bool = True) -> Body:
    """The object as it may be shown. ``contents`` False: of a ConfigMap, too, only keys and sizes."""
    metadata = {k: v for k, v in found["metadata"].items() if k != "managedFields"}
    annotations = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != LAST_APPLIED}
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
    kept = {**found, "metadata": metadata}
    if found.get("kind") == "Secret" or (found.get("kind") == "ConfigMap" and not contents):
        for part in ("data", "stringData", "binaryData"):
            if part in kept:
                kept[part] = {k: size(found["kind"], v) for k, v in (kept[part] or {}).items()}
    return {key: _clean(value) for key, value in kept.items()}


def size(kind: str, value: Any) -> str:
    """Length of a value, instead of the value; of a Secret's the length of what it stands for."""
    length = len(str(value).encode())
    if kind == "Secret":
        try:
            length = len(base64.b64decode(str(value), validate=True))
        except binascii.Error:
            pass
    return f"({length} bytes, hidden)"


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        name, plain = value.get("name"), value.get("value")
        if isinstance(name, str) and isinstance(plain, str) and plain and SECRET_NAME.search(name):
            return {**value, "value": size("", plain)}
        return {key: _clean(item) for key, item in value.items()}
    return value
