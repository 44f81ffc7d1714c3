"""The bytes of one TCP, TLS or unix connection; what they mean is :mod:`moorage.storage.link`'s."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

OUTPUT_MAX_BYTES = 64 * 1024 * 1024
"""Unsent bytes beyond which commands are refused instead of queued (Redis is frozen or slow)."""
KEEPALIVE_IDLE_S = 5
KEEPALIVE_PROBES = 3


class Connection(asyncio.Protocol):
    """Calls ``received(self, data)`` and, at its end, ``lost(self, reason)``.

    ``user_timeout_ms``: the kernel gives sent bytes up that the peer's kernel did not take for so long
    (TCP_USER_TIMEOUT); 0: not TCP.
    """

    def __init__(
        self,
        *,
        received: Callable[[Connection, bytes], None],
        lost: Callable[[Connection, str], None],
        user_timeout_ms: int,
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self.full = False
        """More than :data:`OUTPUT_MAX_BYTES` wait to be sent."""
        self.closed = asyncio.get_running_loop().create_future()
        self._received, self._lost, self._user_timeout_ms = received, lost, user_timeout_ms

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass
        self.transport.set_write_buffer_limits(high=OUTPUT_MAX_BYTES)
        if self._user_timeout_ms:
            self._tune(transport.get_extra_info("socket"))

    def _tune(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
            ("TCP_KEEPINTVL", KEEPALIVE_IDLE_S),
            ("TCP_KEEPCNT", KEEPALIVE_PROBES),
            ("TCP_USER_TIMEOUT", self._user_timeout_ms),
        ):
            if hasattr(socket, option):  # not every platform has all of them
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)

    def data_received(self, data: bytes) -> None:
        self._received(self, data)

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.full = False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None)
        self._lost(self, "connection closed by Redis" if exc is None else f"connection lost: {exc}")
