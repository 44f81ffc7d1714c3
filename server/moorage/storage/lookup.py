"""The addresses of a name, looked up anew for each connection."""

from __future__ import annotations

import asyncio
import socket
from typing import Any


class Lookup:
    """Create and use it in one running event loop, one call of :meth:`addresses` at a time.

    There is one look-up at a time: one that hangs occupies a thread until it ends, whoever has ceased to wait for it,
    and those threads are few. Who asks again waits for the one that is under way.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._running: asyncio.Task[list[Any]] | None = None

    async def addresses(self) -> list[str]:
        """In the resolver's order. Raises OSError. Has no bound of its own: cancel it."""
        if self._running is None:
            self._running = asyncio.create_task(self._ask())
        await asyncio.wait([self._running])
        found, self._running = self._running, None
        return [address[0] for *_, address in found.result()]

    async def _ask(self) -> list[Any]:
        return await asyncio.get_running_loop().getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)

    def close(self) -> None:
        """Nobody will ask any more; what is under way ends unheard."""
        if self._running is not None:
            self._running.add_done_callback(lambda task: task.cancelled() or task.exception())
            self._running = None
