"""A checked ``rpc-call`` payload, and what can be the name of a method. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from moorage.errors import RpcError

METHOD_MAX = 256
"""Longest method name (PROTOCOL, RPC step 1)."""
REQUEST_ID_MAX = 256
"""Longest request id a caller may choose; ours are shorter than 24 characters."""


def is_text(value: str) -> bool:
    """Whether ``value`` can be encoded: JSON can express lone surrogates, which no log, label or wire can hold."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


@dataclass(slots=True, frozen=True)
class Request:
    """A checked ``rpc-call`` payload. ``timeout_ms`` None: the default, counted from ``rpc-request``."""

    method: str
    params: Any
    timeout_ms: float | None
    request_id: str
    on_target_lost: Literal["fail", "wait"]

    @classmethod
    def parse(cls, payload: Any, timeout_max_ms: float, own_id: str) -> Request:
        """``own_id`` is the request id where the caller gave none.

        Raises :class:`RpcError` ``invalid_params`` that says what is wrong.
        """
        if not isinstance(payload, dict):
            raise RpcError("invalid_params", error="Invalid parameters: an object is required")
        method = payload.get("method")
        if not isinstance(method, str) or not method:
            raise RpcError("invalid_params")
        if len(method) > METHOD_MAX:
            raise RpcError("invalid_params", error=f"Invalid parameters: method is longer than {METHOD_MAX}")
        if not is_text(method):
            raise RpcError("invalid_params", error="Invalid parameters: method is no valid text")
        timeout = payload.get("timeoutMs")
        if timeout is not None:
            if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
                raise RpcError(
                    "invalid_params", error="Invalid parameters: timeoutMs must be a positive number"
                )
            timeout = float(min(timeout, timeout_max_ms))
        request_id = payload.get("requestId")
        if request_id is None:
            request_id = own_id
        elif not isinstance(request_id, str) or not (
            0 < len(request_id) <= REQUEST_ID_MAX and is_text(request_id)
        ):
            raise RpcError(
                "invalid_params",
                error=f"Invalid parameters: requestId must be a string of 1 to {REQUEST_ID_MAX}",
            )
        lost = payload.get("onTargetLost", "fail")
        if lost not in ("fail", "wait"):
            raise RpcError("invalid_params", error="Invalid parameters: onTargetLost must be fail or wait")
        return cls(method, payload.get("params"), timeout, request_id, lost)
