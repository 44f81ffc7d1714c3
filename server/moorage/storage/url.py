"""Redis URLs: ``redis://`` (TCP), ``rediss://`` (TLS) and ``unix://`` (socket file)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from urllib.parse import parse_qs, unquote, urlsplit

from moorage.errors import ConfigurationError

DEFAULT_PORT = 6379


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """Where a Redis is and who we are there. ``str`` shows neither user nor password."""

    scheme: str
    host: str = "localhost"
    port: int = DEFAULT_PORT
    path: str = ""
    """Socket file; only with ``unix``."""
    user: str = field(default="", repr=False)
    password: str | None = field(default=None, repr=False)
    db: int = 0

    def __str__(self) -> str:
        if self.scheme == "unix":
            return f"unix://{self.path}?db={self.db}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/{self.db}"

    def tls(self, ca_file: str | None) -> ssl.SSLContext | None:
        """The TLS context of ``rediss``, with ``ca_file`` or the system's CAs; always verifies.

        Raises :class:`ConfigurationError` when the file is missing or no PEM bundle.
        """
        if self.scheme != "rediss":
            return None
        try:
            return ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"REDIS_CA_FILE: cannot be loaded: {error}") from None


def parse_url(url: str) -> RedisUrl:
    """``redis[s]://[user[:password]@]host[:port][/db][?db=n]`` or ``unix://[user:password@]/path[?db=n]``.

    User and password are percent-decoded; a lone ``:password@`` means the default user.
    Raises :class:`ConfigurationError`, whose text never contains the URL itself (it may hold a password).
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigurationError("Redis URL: host or port is malformed") from None
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise ConfigurationError("Redis URL: must start with redis://, rediss:// or unix://")
    unix = parts.scheme == "unix"
    chosen = parse_qs(parts.query).get("db") or ([parts.path.strip("/")] if not unix else [])
    db = chosen[0] if chosen and chosen[0] else "0"
    if not (db.isascii() and db.isdigit()):
        raise ConfigurationError("Redis URL: the database must be a number")
    if unix and not parts.path:
        raise ConfigurationError("Redis URL: unix:// needs the path of the socket")
    return RedisUrl(
        scheme=parts.scheme,
        host=parts.hostname or "localhost",
        port=port or DEFAULT_PORT,
        path=unquote(parts.path) if unix else "",
        user=unquote(parts.username or ""),
        password=None if parts.password is None else unquote(parts.password),
        db=int(db),
    )
