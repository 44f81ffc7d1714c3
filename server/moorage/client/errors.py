"""What a client can be told besides :class:`moorage.errors.RpcError`.

MoorageError
├── ClientError
│   ├── Refused              the server said no to the connection or the sign-in; trying again is no use
│   ├── Unreachable          no connection now; trying again may help
│   └── RegistrationError    the server does not let this daemon serve a method
└── RpcError
    └── ConnectionLost       the connection carrying a call is gone before its answer came
"""

from __future__ import annotations

from typing import Any, cast

from moorage.errors import RPC_CODES, Delivered, MoorageError, RpcError

FATAL_REFUSALS = frozenset(
    {
        "Missing authentication token",
        "Session ID required for session-scoped clients",
        "Machine ID required for machine-scoped clients",
        "Invalid authentication token",
    }
)
"""``connect_error.message`` strings after which no later attempt can succeed (PROTOCOL, Socket.IO)."""

INVALID_TOKEN = "Invalid authentication token"


class ClientError(MoorageError):
    """Base of the errors of connections."""


class Refused(ClientError):
    """The server refused for good; ``message`` is its own text."""

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(message)


class Unreachable(ClientError):
    """No connection now: nobody listens, no answer in time, or a refusal that may pass."""


class RegistrationError(ClientError):
    """The server refused ``method``; ``error`` is its text (``Invalid method name``, ``Too many
    methods``)."""

    def __init__(self, method: str, error: str) -> None:
        self.method = method
        self.error = error
        super().__init__(f"{method}: {error}")


class ConnectionLost(RpcError):
    """The connection that carried the call is gone, or there was none to send it on.

    ``code`` is ``connection_lost`` (no server says this, so it is not in ``RPC_CODES``); ``delivered`` is
    ``no`` if nothing was sent, else ``unknown``."""

    def __init__(self, reason: str = "connection lost", *, delivered: Delivered = "unknown") -> None:
        MoorageError.__init__(self, reason)
        self.code = "connection_lost"
        self.error = reason
        self.delivered = delivered


def result_of(ack: Any) -> Any:
    """The result in the ack of ``rpc-call``, ``{ok:true,result}``.

    Raises :class:`RpcError` for ``{ok:false,error,code,delivered}``. A code this version does not know, and
    an ack that is neither, are ``internal_error``."""
    if isinstance(ack, dict):
        if ack.get("ok") is True:
            return ack.get("result")
        code, error, delivered = ack.get("code"), ack.get("error"), ack.get("delivered")
        known = delivered if delivered in ("no", "yes", "unknown") else None
        raise RpcError(
            code if isinstance(code, str) and code in RPC_CODES else "internal_error",
            error=error if isinstance(error, str) else None,
            delivered=cast("Delivered | None", known),
        )
    raise RpcError("internal_error", error="Malformed answer")
