"""An upgrade request whose sender is still being looked up: what it sends meanwhile waits, a refusal is HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Protocol

import orjson

from moorage.bugs import log_bug
from moorage.errors import HttpError, Unavailable
from moorage.sockets.streams import Admitted

log = logging.getLogger(__name__)

EARLY_MAX_BYTES = 4096
"""[bytes] Kept of what comes before we have answered. A WebSocket client may send nothing until then."""


class Upgrade(Protocol):
    """The HTTP protocol that got the request; gets the connection back when its sender may come in."""

    transport: asyncio.Transport
    connections: set[Any]

    def admitted(self, admitted: Admitted, early: bytes) -> None: ...


class Undecided(asyncio.Protocol):
    """Holds the connection until ``decide`` has returned; it raises HttpError to refuse."""

    def __init__(self, upgrade: Upgrade, decide: Callable[[], Awaitable[Admitted]]) -> None:
        self._upgrade = upgrade
        self._early = b""
        self._transport = upgrade.transport
        self._transport.set_protocol(self)
        upgrade.connections.discard(upgrade)
        upgrade.connections.add(self)
        self._task = asyncio.get_running_loop().create_task(self._decide(decide))

    async def _decide(self, decide: Callable[[], Awaitable[Admitted]]) -> None:
        error: HttpError
        try:
            admitted = await decide()
        except HttpError as refusal:
            error = refusal
        except Exception as bug:
            log_bug(log, "admitting a reader", bug)
            error = HttpError(500, "Internal error")
        else:
            self._upgrade.connections.discard(self)
            if not self._transport.is_closing():
                self._upgrade.admitted(admitted, self._early)
            return
        self._refuse(error)

    def _refuse(self, error: HttpError) -> None:
        content: dict[str, Any] = {"error": error.error, "statusCode": error.status}
        if error.message is not None:
            content["message"] = error.message
        body = orjson.dumps(content)
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        if isinstance(error, Unavailable):
            head += f"Retry-After: {Unavailable.RETRY_AFTER_S}\r\n"
        elif error.status == 401:
            head += "WWW-Authenticate: Bearer\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        self._transport.write(head.encode() + body)
        self._transport.close()

    # -- asyncio.Protocol ------------------------------------------------------------------------------------
    def data_received(self, data: bytes) -> None:
        self._early += data
        if len(self._early) > EARLY_MAX_BYTES:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._upgrade.connections.discard(self)
        self._task.cancel()

    # -- uvicorn ---------------------------------------------------------------------------------------------
    def shutdown(self) -> None:
        """The process ends."""
        self._refuse(Unavailable())
