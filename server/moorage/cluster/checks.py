"""What callers may pass: names of events, namespaces and rooms, times, options. No I/O.

What is wrong is refused where it is given: one wrong name of an event ends the connection of every JavaScript client
that gets it, and a wrong option shows itself much later. Those who emit check once an event, not once a recipient.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from moorage.cluster.names import RESERVED_EVENTS, SERVER_RESERVED_EVENTS
from moorage.storage.backplane import Backplane

SECRET_MIN_BYTES = 32
"""As of ``SECRET_KEY``: HMAC-SHA256 wants a key at least as long as its digest (RFC 2104, section 3)."""

TIMER_MAX_MS = 2**31 - 1
"""Longest time of a JavaScript timer; a longer one ends at once there."""


# -- calls ---------------------------------------------------------------------------------------------
def event_name(event: object, reserved: Collection[str] = RESERVED_EVENTS) -> None:
    """Raises :class:`TypeError` or :class:`ValueError` for what no client can be sent as an event."""
    if not isinstance(event, str):
        raise TypeError(f"the name of an event must be a str, not {_type(event)}")
    if event in reserved:
        raise ValueError(f'"{event}" is a reserved event name')


def server_event_name(event: object) -> None:
    """Raises :class:`TypeError` or :class:`ValueError` for what Node refuses as an event between servers."""
    event_name(event, SERVER_RESERVED_EVENTS)


def namespace_name(namespace: object) -> None:
    """Raises :class:`TypeError` or :class:`ValueError` for what is no namespace."""
    if not isinstance(namespace, str):
        raise TypeError(f"a namespace must be a str, not {_type(namespace)}")
    if not namespace.startswith("/"):
        raise ValueError(f'a namespace begins with a slash: "/{namespace}"')


def names(rooms: Any) -> list[str]:
    """None, one name or several, as strings; a None among several is no name. Raises :class:`TypeError` for bytes."""
    if rooms is None:
        return []
    if isinstance(rooms, (bytes, bytearray)):
        raise TypeError("the name of a room must be a str, not bytes")
    if isinstance(rooms, (str, int)) or not isinstance(rooms, Iterable):
        return [str(rooms)]
    return [name if type(name) is str else str(name) for name in rooms if name is not None]


def timeout(value: object) -> None:
    """Raises :class:`TypeError` or :class:`ValueError` for what is no time in milliseconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"a timeout is a number of milliseconds, not {_type(value)}")
    if not 0 < value <= TIMER_MAX_MS:  # NaN is neither
        raise ValueError(f"a timeout is a positive number of milliseconds, at most {TIMER_MAX_MS}")


# -- options -------------------------------------------------------------------------------------------
def text(option: str, value: object) -> None:
    """A text that is not empty."""
    if not isinstance(value, str):
        raise TypeError(f"{option} must be a str, not {_type(value)}")
    if not value:
        raise ValueError(f"{option} must not be empty")


def whole(option: str, value: object, low: int, high: int | None = None) -> None:
    """A whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{option} must be an int, not {_type(value)}")
    if value < low or (high is not None and value > high):
        bounds = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{option} must be {bounds}, not {value}")


def of_cluster(
    redis: object,
    stream_name: object,
    stream_count: object,
    stream_maxlen: object,
    channel_prefix: object,
    sharded: object,
) -> None:
    """What a server and an emitter have in common. Raises :class:`TypeError` or :class:`ValueError`.

    A URL is looked at by the backplane.
    """
    if not isinstance(redis, (str, Backplane)):
        raise TypeError(f"redis must be a URL (redis://…) or a Backplane, not {_type(redis)}")
    text("stream_name", stream_name)
    whole("stream_count", stream_count, 1)
    whole("stream_maxlen", stream_maxlen, 1)
    text("channel_prefix", channel_prefix)
    if not isinstance(sharded, bool):
        raise TypeError(f"sharded_pubsub must be a bool, not {_type(sharded)}")


def of_server(
    namespaces: object, read_count: object, compat: object, secret: object, window_ms: object
) -> None:
    """Options that only a server has. Raises :class:`TypeError` or :class:`ValueError`."""
    if isinstance(namespaces, str) or not isinstance(namespaces, Collection):
        raise TypeError('namespaces must be a collection of str, e.g. ("/", "/admin")')
    for namespace in namespaces:
        namespace_name(namespace)
    whole("stream_read_count", read_count, 1)
    if compat not in ("0.3", "0.2"):
        raise ValueError(f'compat must be "0.3" or "0.2", not {compat!r}')
    whole("recovery_window_ms", window_ms, 0, TIMER_MAX_MS)
    if secret is None:
        return
    if not isinstance(secret, str):
        raise TypeError(f"recovery_secret must be a str or None, not {_type(secret)}")
    if len(secret.encode("utf-8", "replace")) < SECRET_MIN_BYTES:
        raise ValueError(f"recovery_secret must have at least {SECRET_MIN_BYTES} bytes (None: no recovery)")


def _type(value: object) -> str:
    return "None" if value is None else type(value).__name__
