"""A bound on request bodies, whether they announce their length or not."""

from __future__ import annotations

from fastapi import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moorage.http.errors import TOO_LARGE, error_answer


class BodyLimit:
    """ASGI middleware: a body over ``max_bytes`` is answered with 413 and not read further."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._why = f"More than {max_bytes} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if announced.isdigit() and int(announced[:20]) > self._max_bytes:
            # The rest of the body is not worth reading, so the connection cannot be used again.
            response = error_answer(413, TOO_LARGE, self._why, {"Connection": "close"})
            return await response(scope, receive, send)
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._max_bytes:
                raise HTTPException(413, self._why)
            return message

        await self._app(scope, counted, send)
