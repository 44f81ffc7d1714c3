"""Long polling: what is sent waits for the next poll, within a bound."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import TYPE_CHECKING, Any

from engineio import exceptions
from engineio.packet import CLOSE, NOOP
from engineio.packet import Packet as EngineIOPacket

from moorage.cluster.packets import Encoded
from moorage.sockets.transport import TRANSPORT_ERROR, Peer, Socket

if TYPE_CHECKING:
    from moorage.sockets.engine import Engine

MAX_POLL_PACKETS = 16
"""Packets in one answer to a poll: clients on python-engineio refuse more (``Payload.max_decode_packets``)."""


class PollingSocket(Socket):
    """Long polling: packets wait in python-engineio's queue, at most ``max_buffer_bytes``."""

    def __init__(self, engine: Engine, peer: Peer) -> None:
        self.queue: asyncio.Queue[EngineIOPacket | None] = asyncio.Queue()
        self._queued = 0
        self._fetching: asyncio.TimerHandle | None = None
        super().__init__(engine, peer)

    @property
    def unsent(self) -> int:  # type: ignore[override]
        return self._queued

    def push(self, packet: Encoded) -> None:
        for part in packet.polling:
            self.send_now(part)

    def send_now(self, packet: EngineIOPacket) -> None:
        if self.closing:
            return
        self._queued += len(packet.data or "")
        if self._queued > self.engine.max_buffer_bytes:
            self._loop.call_soon(self.engine.sink.overflow, self.peer)
            return
        self.queue.put_nowait(packet)

    async def poll(self) -> list[EngineIOPacket]:
        """What is queued; waits for something, at most until the heartbeat has long ended the socket."""
        engine = self.engine
        try:
            packet = await asyncio.wait_for(self.queue.get(), engine.ping_interval + engine.ping_timeout + 1)
        except TimeoutError:
            raise exceptions.QueueEmpty from None
        if packet is None:
            self._forget()
            return [EngineIOPacket(CLOSE)]
        packets = []
        while True:
            packets.append(packet)
            self._queued -= len(packet.data or "")
            if len(packets) == MAX_POLL_PACKETS or self.queue.empty():
                return packets
            packet = self.queue.get_nowait()
            if packet is None:
                # CLOSE gets a poll of its own: Node's client forgets a DISCONNECT that comes just before it.
                self.queue.put_nowait(None)
                return packets

    def drain(self) -> list[EngineIOPacket]:
        """Take what is queued, for the WebSocket that replaces this socket."""
        packets = []
        while not self.queue.empty():
            packet = self.queue.get_nowait()
            if packet is not None and packet.packet_type != NOOP:
                packets.append(packet)
        return packets

    async def handle_post_request(self, environ: dict[str, Any]) -> None:
        """Raises ``EngineIOError`` (HTTP 400, the client is dropped) for a body that is no payload."""
        limit = self.engine.max_http_buffer_size
        body = await environ["wsgi.input"].read(limit + 1)
        if len(body) > limit:
            self.engine.sink.malformed(self.peer, "payload too large")
        for part in body.split(b"\x1e"):
            if self.closing:
                break
            if part[:1] != b"b":
                self.take_text(part)
            else:
                try:
                    self.take_binary(base64.b64decode(part[1:], validate=True))
                except binascii.Error:
                    self.engine.sink.malformed(self.peer, "base64")
        if self.peer.closed == TRANSPORT_ERROR and self.engine.sockets.get(self.sid) is self:
            raise exceptions.EngineIOError

    def retire(self) -> None:
        """A WebSocket has taken over: end the poll that still waits, tell nobody."""
        self.closing = self.closed = True
        self.stop_heartbeat()
        self.queue.put_nowait(EngineIOPacket(NOOP))

    def _end_transport(self, abort: bool, reason: str) -> None:
        if abort:
            self.drain()
        self.queue.put_nowait(None)
        # What is queued (the Socket.IO DISCONNECT) can still be fetched.
        self._fetching = self._loop.call_later(self.engine.ping_interval, self._forget)

    def _forget(self) -> None:
        self.closed = True
        if self._fetching is not None:
            self._fetching.cancel()
        if self.engine.sockets.get(self.sid) is self:
            del self.engine.sockets[self.sid]
