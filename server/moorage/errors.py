"""Every error a client can meet, as data: code, string, HTTP status and what it says about delivery.

The strings are part of PROTOCOL and never change. ``definite`` tells a caller (and the chaos harness's
histories) whether the operation certainly did not happen ("no") or may have happened ("unknown").

    MoorageError
    ├── RpcError(code)              the typed end of a call
    ├── HttpError(status, error)    the typed answer of a route
    │   └── Unavailable             503: what must be stored cannot be stored now
    ├── BackplaneError              Redis
    │   ├── BackplaneUnavailable    certainly not done: nothing was written to the connection
    │   ├── BackplaneUnknown        may have been done: the connection was lost before the reply
    │   └── BackplaneReply          Redis itself answered with an error (text in ``str``)
    ├── PresenceUnknown             a replica did not answer and nobody active was found
    ├── InvalidEvent                what was to be reported is no event
    │   └── EventTooLarge           its data is over EVENT_MAX_BYTES
    ├── CannotListen                a port of ours cannot be had
    └── ConfigurationError          refuse to start, with the reason
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Delivered = Literal["no", "yes", "unknown"]


class MoorageError(Exception):
    """Base of all errors raised by moorage on purpose."""


@dataclass(frozen=True, slots=True)
class RpcCode:
    """One row of the table of RPC ends."""

    code: str
    error: str
    delivered: Delivered | None  # None: as known at the time of the end
    """What the code alone says about delivery to the target."""


RPC_CODES: dict[str, RpcCode] = {
    c.code: c
    for c in (
        RpcCode("invalid_params", "Invalid parameters: method is required", "no"),
        RpcCode("not_available", "RPC method not available", "no"),
        RpcCode("self_call", "Cannot call RPC on the same socket", "no"),
        RpcCode("target_disconnected", "RPC target disconnected", None),
        RpcCode("timeout", "operation has timed out", None),
        RpcCode("backplane_unavailable", "RPC backplane unavailable", "no"),
        RpcCode("overloaded", "Too many RPC calls in flight", "no"),
        RpcCode("cancelled", "RPC call cancelled", None),
        RpcCode("internal_error", "Internal error", "unknown"),
    )
}


class RpcError(MoorageError):
    """The typed end of a call.

    ``code`` is a key of :data:`RPC_CODES`; ``error`` its string (``invalid_params`` may say what is wrong);
    ``delivered`` whether the request reached the target.
    """

    def __init__(self, code: str, *, error: str | None = None, delivered: Delivered | None = None) -> None:
        row = RPC_CODES[code]
        self.code = code
        self.error = error or row.error
        self.delivered: Delivered = delivered or row.delivered or "unknown"
        super().__init__(self.error)

    def as_ack(self) -> dict[str, object]:
        """The ack of ``rpc-call``: ``{ok:false,error,code,delivered}``."""
        return {"ok": False, "error": self.error, "code": self.code, "delivered": self.delivered}


class HttpError(MoorageError):
    """The typed answer of a route: ``{error, message?, statusCode}`` with that status."""

    def __init__(self, status: int, error: str, message: str | None = None) -> None:
        self.status = status
        self.error = error
        self.message = message
        super().__init__(error)


class Unavailable(HttpError):
    """503 ``Backplane unavailable`` with ``Retry-After``: nothing was stored, nothing is half-queued."""

    RETRY_AFTER_S = 1

    def __init__(self) -> None:
        super().__init__(503, "Backplane unavailable")


class BackplaneError(MoorageError):
    """Redis did not do what was asked."""


class BackplaneUnavailable(BackplaneError):
    """Certainly not done: nothing was written to the connection."""


class BackplaneUnknown(BackplaneError):
    """May have been done: written, but the reply never came (connection lost or over its bound)."""


class BackplaneReply(BackplaneError):
    """Redis answered with an error; ``str`` is its text (``WRONGTYPE …``, ``OOM …``)."""


class PresenceUnknown(MoorageError):
    """A replica did not answer in time and nobody active was found elsewhere: neither true nor false."""


class InvalidEvent(MoorageError):
    """What was to be reported is no event; the text says why and where, and holds no value that was sent."""


class EventTooLarge(InvalidEvent):
    """The data of an event has more bytes of JSON than ``EVENT_MAX_BYTES``."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"{size} bytes of data, {limit} are allowed")


class ConfigurationError(MoorageError):
    """A setting makes it impossible to start; the message names the variable and the remedy."""


class CannotListen(MoorageError):
    """A port is taken or forbidden; the message names the variable, the address and the reason."""
