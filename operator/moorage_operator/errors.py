"""What can go wrong, without kopf and without a Kubernetes client.

OperatorError
├── SpecError            the object cannot be understood; only its author can help
└── ApiError(status)     the API server said no, or nothing
    ├── NotFound         404
    ├── Conflict         409: somebody was faster, or it exists already
    ├── Invalid          422: Kubernetes refuses what we want; message names the field
    ├── Forbidden        401, 403: RBAC, or a namespace that is going
    ├── TooMany          429: come back after ``retry_after`` seconds
    └── Unreachable      no answer within the bound, 5xx
"""

from __future__ import annotations


class OperatorError(Exception):
    """Base of all errors raised by the operator on purpose."""


class SpecError(OperatorError):
    """The spec cannot work as it stands; the text names the field."""


class ApiError(OperatorError):
    """The API server's refusal: ``status`` (0: no answer), ``reason`` as it gave it, text for people."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409."""


class Invalid(ApiError):
    """422 or 400: repeated unchanged it will fail again."""


class Forbidden(ApiError):
    """401 or 403."""


class TooMany(ApiError):
    """429; ``retry_after`` in seconds."""


class Unreachable(ApiError):
    """No answer, or 5xx: it may have been done."""


BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: Invalid,
    429: TooMany,
}


def api_error(status: int, message: str, *, reason: str = "", retry_after: float = 0.0) -> ApiError:
    """The class for an HTTP status; unknown ones and 5xx are :class:`Unreachable`."""
    kind = BY_STATUS.get(status, Unreachable)
    return kind(message, status=status, reason=reason, retry_after=retry_after)
