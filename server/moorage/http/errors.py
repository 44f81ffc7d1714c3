"""Errors as answers: ``{error, message?, statusCode}`` with that status, and never more than that."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moorage.bugs import log_bug
from moorage.errors import BackplaneError, BackplaneUnknown, HttpError, Unavailable

log = logging.getLogger(__name__)

TOO_LARGE = "Payload Too Large"
"""Written out, since Python's own phrase for 413 depends on its version."""

MESSAGE_MAX = 300
"""Characters of ``message``: a body with a thousand faults gets the first few named."""


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``content`` as a JSON response. It is encoded directly: what was checked on the way in needs no second look."""
    try:
        body = orjson.dumps(content)
    except TypeError:
        # Deepest nesting that may be stored, and our own around it, is more than orjson writes.
        body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, headers, "application/json")


def error_answer(
    status: int, error: str, message: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """``{error, message?, statusCode}``."""
    body: dict[str, Any] = {"error": error, "statusCode": status}
    if message:
        body["message"] = message[:MESSAGE_MAX]
    return answer(body, status, headers)


def describe(error: RequestValidationError) -> str:
    """Which fields are wrong and how, without a value that was sent: a value may be a secret."""
    faults = []
    for item in error.errors()[:5]:
        place = ".".join(str(part) for part in item["loc"] if isinstance(part, int) or part.isidentifier())
        # The text of a failed union names the value; all others speak of the rule only.
        text = "Unknown type" if item["type"] == "union_tag_invalid" else item["msg"]
        faults.append(f"{place}: {text}" if place else str(text))
    return "; ".join(faults).encode(errors="replace").decode()


def backplane_answer(error: BackplaneError, *, reads: bool = False) -> Response:
    """503, and whether it is certain that nothing was done; a request that only ``reads`` does nothing anyway."""
    unavailable = Unavailable()
    if reads:
        unavailable.message = "Redis is out of reach: it could not be read"
    elif isinstance(error, BackplaneUnknown):
        unavailable.message = "Whether it was done is not known"
    return _http_error_answer(unavailable)


def _from_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HttpError)
    return _http_error_answer(error)


def _http_error_answer(error: HttpError) -> Response:
    headers = {}
    if isinstance(error, Unavailable):
        headers["Retry-After"] = str(Unavailable.RETRY_AFTER_S)
    elif error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return error_answer(error.status, error.error, error.message, headers)


def _from_backplane(request: Request, error: Exception) -> Response:
    assert isinstance(error, BackplaneError)
    return backplane_answer(error, reads=request.method in ("GET", "HEAD"))


def _from_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if any(item["type"] == "json_invalid" for item in error.errors()):
        return error_answer(400, "Invalid JSON")
    return error_answer(422, "Invalid request", describe(error))


def _from_starlette(request: Request, error: Exception) -> Response:
    """Unknown routes (404), wrong methods (405), unreadable and too large bodies (400, 413)."""
    assert isinstance(error, HTTPException)
    if error.status_code == 413:
        return error_answer(413, TOO_LARGE, error.detail, error.headers)
    return error_answer(error.status_code, HTTPStatus(error.status_code).phrase, headers=error.headers)


def install(app: FastAPI) -> None:
    """Make every error of ``app`` an answer in that shape."""
    app.add_exception_handler(HttpError, _from_http_error)
    app.add_exception_handler(BackplaneError, _from_backplane)
    app.add_exception_handler(RequestValidationError, _from_validation)
    app.add_exception_handler(HTTPException, _from_starlette)
    app.add_middleware(_Bugs)


class _Bugs:
    """ASGI middleware: an unexpected exception is an answer and a line in the log, here and not further out,
    where its text would be printed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started = False

        async def noted(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as error:
            route = getattr(scope.get("route"), "path", "unknown route")
            log_bug(log, f"{scope['method']} {route}", error)
            if not started:
                await error_answer(500, "Internal error")(scope, receive, send)
