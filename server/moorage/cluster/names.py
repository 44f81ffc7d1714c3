"""Names of streams and channels in the adapter's format, names that no event may have, and ids. No I/O."""

from __future__ import annotations

import secrets

RESERVED_EVENTS = frozenset(
    {"connect", "connect_error", "disconnect", "disconnecting", "newListener", "removeListener"}
)
"""Names of no event, in either direction: socket.io-parser refuses them, and a JavaScript client that is sent one
closes its connection; python-socketio would run the handlers."""

SERVER_RESERVED_EVENTS = frozenset({"connect", "connection", "new_namespace"})
"""Names of no event between servers: a Node server has handlers of its own for them."""


def new_uid() -> str:
    """16 hex digits: a node in one namespace, or a request."""
    return secrets.token_hex(8)


def namespace_hash(namespace: str) -> int:
    """Node's string hash: factor 31 over UTF-16 code units, signed 32 bit after each step."""
    units = namespace.encode("utf-16-le", "surrogatepass")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (value * 31 + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def stream_of(name: str, namespace: str, count: int = 1) -> str:
    """The one stream that carries a namespace.

    JavaScript's remainder keeps the sign, so some namespaces get a name like ``socket.io--3`` that Node writes
    but does not read. We write and read that same name.
    """
    if count == 1:
        return name
    value = namespace_hash(namespace)
    index = abs(value) % count
    return f"{name}-{-index if value < 0 and index else index}"


def public_channel(prefix: str, namespace: str) -> str:
    """Requests to all nodes of a namespace."""
    return f"{prefix}#{namespace}#"


def private_channel(prefix: str, namespace: str, uid: str) -> str:
    """Answers to one node."""
    return f"{prefix}#{namespace}#{uid}#"
