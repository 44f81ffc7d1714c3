"""Engine.IO (protocol 4): python-engineio's server for HTTP, our own sockets behind it.

A socket here has no task. Its heartbeat is one timer; what it receives goes straight to the :class:`Sink`, and
what is pushed to it is written (WebSocket) or queued for the next poll (long polling), always within a bound.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from dataclasses import dataclass, field
from typing import Any, Protocol

import engineio
import orjson
from engineio import exceptions
from engineio.async_drivers.asgi import translate_request
from engineio.async_socket import AsyncSocket
from engineio.packet import CLOSE, NOOP, OPEN, PING
from engineio.packet import Packet as EngineIOPacket

from moorage.cluster.packets import Encoded, Packet
from moorage.sockets.limited import LimitedLog

logger = logging.getLogger(__name__)

BEHIND_BYTES = 65_536
"""A socket with more than this unsent is "behind": volatile events leave it out (Node asks "writable")."""

MAX_POLL_PACKETS = 16
"""Packets in one answer to a poll: clients on python-engineio refuse more (``Payload.max_decode_packets``)."""

TRANSPORT_CLOSE = "transport close"
TRANSPORT_ERROR = "transport error"
PING_TIMEOUT = "ping timeout"
CLIENT_DISCONNECT = "client disconnect"
SERVER_DISCONNECT = "server disconnect"
SHUTTING_DOWN = "server shutting down"

_ANSWERS = (
    ("Invalid session", 1, "Session ID unknown"),
    ("Invalid transport", 0, "Transport unknown"),
    ("The client is using an unsupported version", 5, "Unsupported protocol version"),
)
"""How python-engineio's refusals begin and what Node's engine.io answers (its ``Server.errorMessages``)."""

_affinity_hint = LimitedLog(logger, 60.0)


@dataclass(slots=True)
class Peer:
    """What is known of one client, whichever transport it uses now."""

    eio_sid: str
    partial: Packet | None = None  # a binary packet that waits for its attachments
    attachments: list[bytes] = field(default_factory=list)
    attached_bytes: int = 0
    connecting: bool = False  # a connect handler runs; what comes meanwhile waits in `backlog`
    backlog: list[Packet] = field(default_factory=list)
    join_timer: asyncio.TimerHandle | None = None
    closed: str | None = None  # the reason, once the transport is gone


class Sink(Protocol):
    """Where clients' messages go. Nothing here may raise."""

    def opened(self, eio_sid: str, environ: dict[str, Any]) -> Peer: ...
    def text(self, peer: Peer, raw: bytes, offset: int) -> None: ...
    def binary(self, peer: Peer, data: bytes) -> None: ...
    def heard(self, peer: Peer) -> None: ...
    def closed(self, peer: Peer, reason: str) -> None: ...
    def overflow(self, peer: Peer) -> None: ...
    def malformed(self, peer: Peer, why: str) -> None: ...


class Socket(AsyncSocket):  # type: ignore[misc]
    """Heartbeat and end of a client's transport; the two kinds of transport add how bytes leave."""

    def __init__(self, engine: Engine, peer: Peer) -> None:
        # Not upstream's __init__: its queue (2.6 kB) is of use to polling only.
        self.server = self.engine = engine
        self.sid = peer.eio_sid
        self.peer = peer
        self.session: dict[str, Any] = {}
        self.connected = True
        self.upgrading = self.upgraded = False
        self.closing = self.closed = False
        self._pinged = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self.schedule_ping()

    # -- out -----------------------------------------------------------------------------------------------
    behind: bool

    def push(self, packet: Encoded) -> None:
        """Send one Socket.IO packet, nothing in between. Never waits, runs no callback."""
        raise NotImplementedError

    def send_now(self, packet: EngineIOPacket) -> None:
        """Send one Engine.IO packet."""
        raise NotImplementedError

    async def send(self, pkt: EngineIOPacket) -> None:
        """python-engineio's name for :meth:`send_now`."""
        self.send_now(pkt)

    # -- heartbeat -----------------------------------------------------------------------------------------
    def schedule_ping(self) -> None:
        """Next ping after ``pingInterval``."""
        self._pinged = False
        self.stop_timer()
        self._timer = self._loop.call_later(self.engine.ping_interval, self._ping)

    def stop_timer(self) -> None:
        """No ping and no timeout any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _ping(self) -> None:
        self._pinged = True
        self._timer = self._loop.call_later(self.engine.ping_timeout, self.close_now, PING_TIMEOUT)
        self.send_now(EngineIOPacket(PING))

    # -- in ------------------------------------------------------------------------------------------------
    def take_text(self, raw: bytes) -> None:
        """One Engine.IO packet in text form."""
        if self.closing:
            return
        kind = raw[:1]
        if kind == b"4":
            self.engine.sink.text(self.peer, raw, 1)
        elif kind == b"3":
            if self._pinged:
                self.schedule_ping()
                self.engine.sink.heard(self.peer)
        elif kind == b"1":
            self.close_now(CLIENT_DISCONNECT)
        elif kind not in (b"5", b"6"):
            self.engine.sink.malformed(self.peer, "engine.io packet type")

    def take_binary(self, data: bytes) -> None:
        """One binary message."""
        if not self.closing:
            self.engine.sink.binary(self.peer, data)

    # -- end -----------------------------------------------------------------------------------------------
    def close_now(self, reason: str, *, abort: bool = False) -> None:
        """End the transport, once. ``abort``: without sending what is queued."""
        if self.closing:
            return
        self.closing = True
        self.stop_timer()
        self._end_transport(abort, reason)
        self.engine.ended[self.sid] = self
        self.engine.sink.closed(self.peer, reason)

    async def close(self, wait: bool = True, abort: bool = False, reason: str | None = None) -> None:
        """python-engineio's name for :meth:`close_now`."""
        self.close_now(reason or SERVER_DISCONNECT, abort=abort)

    def _end_transport(self, abort: bool, reason: str) -> None:
        raise NotImplementedError


class PollingSocket(Socket):
    """Long polling: packets wait in python-engineio's queue, at most ``max_buffer_bytes``."""

    def __init__(self, engine: Engine, peer: Peer) -> None:
        self.queue: asyncio.Queue[EngineIOPacket | None] = asyncio.Queue()
        self._queued = 0
        super().__init__(engine, peer)

    @property
    def behind(self) -> bool:  # type: ignore[override]
        return self._queued > BEHIND_BYTES

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
        self.stop_timer()
        self.queue.put_nowait(EngineIOPacket(NOOP))

    def _end_transport(self, abort: bool, reason: str) -> None:
        if abort:
            self.drain()
        self.queue.put_nowait(None)
        # What is queued (the Socket.IO DISCONNECT) can still be fetched.
        self._timer = self._loop.call_later(self.engine.ping_interval, self._forget)

    def _forget(self) -> None:
        self.closed = True
        self.stop_timer()
        if self.engine.sockets.get(self.sid) is self:
            del self.engine.sockets[self.sid]


class Engine(engineio.AsyncServer):  # type: ignore[misc]
    """python-engineio's server with our sockets; WebSockets are :mod:`moorage.sockets.websocket`'s."""

    sink: Sink
    sockets: dict[str, Socket]

    def __init__(self, *, max_buffer_bytes: int, **options: Any) -> None:
        super().__init__(async_mode="asgi", monitor_clients=False, **options)
        self.max_buffer_bytes = max_buffer_bytes
        self.ended: dict[str, Socket] = {}  # gone, but a disconnect handler may still ask for the session
        self._async: dict[str, Any] = {**self._async, "translate_request": _translate}

    def open_packet(self, eio_sid: str, upgrades: list[str]) -> EngineIOPacket:
        """The handshake: ids, heartbeat in milliseconds, largest message in bytes."""
        handshake = {
            "sid": eio_sid,
            "upgrades": upgrades,
            "pingTimeout": int(self.ping_timeout * 1000),
            "pingInterval": int(self.ping_interval * 1000),
            "maxPayload": self.max_http_buffer_size,
        }
        return EngineIOPacket(OPEN, orjson.dumps(handshake).decode())

    def close_all(self, reason: str) -> None:
        """Close every transport."""
        for socket in list(self.sockets.values()):
            socket.close_now(reason)

    async def get_session(self, sid: str) -> dict[str, Any]:
        """As upstream, and until the disconnect handlers are done."""
        socket = self.ended.get(sid) or self._get_socket(sid)
        session: dict[str, Any] = socket.session
        return session

    def refuses_origin(self, environ: dict[str, Any]) -> bool:
        """True for a cross-origin request that ``cors_allowed_origins`` does not allow."""
        origin = environ.get("HTTP_ORIGIN")
        allowed = self._cors_allowed_origins(environ)
        return origin is not None and allowed is not None and origin not in allowed

    async def _handle_connect(
        self, environ: dict[str, Any], transport: str, jsonp_index: int | None = None
    ) -> Any:
        if transport != "polling":
            return self._bad_request("Invalid transport")
        peer = self.sink.opened(self.generate_id(), environ)
        socket = PollingSocket(self, peer)
        self.sockets[peer.eio_sid] = socket
        upgrades = ["websocket"] if self.allow_upgrades else []
        return self._ok([self.open_packet(peer.eio_sid, upgrades)], jsonp_index=jsonp_index)

    def _bad_request(self, message: str | None = None) -> dict[str, Any]:
        code, text = next(
            ((code, text) for start, code, text in _ANSWERS if (message or "").startswith(start)),
            (3, "Bad request"),
        )
        return {
            "status": "400 BAD REQUEST",
            "headers": [("Content-Type", "application/json")],
            "response": orjson.dumps({"code": code, "message": text}),
        }

    def _log_error_once(self, message: str, message_key: str) -> None:
        if message_key == "bad-sid":
            _affinity_hint.warning(
                "long polling with a session id that is unknown here: with several replicas polling needs session "
                'affinity; let clients use transports: ["websocket", "polling"]'
            )
        else:
            logger.debug("refused: %s", message_key)


async def _translate(scope: dict[str, Any], receive: Any, send: Any) -> dict[str, Any]:
    """Upstream's environ with the real peer; upstream puts 127.0.0.1."""
    environ: dict[str, Any] = await translate_request(scope, receive, send)
    if not environ:
        # The client is gone before its request was read: any answer will do, nobody gets it.
        environ = {"REQUEST_METHOD": "GONE", "asgi.scope": scope, "asgi.send": send}
    environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = peer_of(scope)
    return environ


def peer_of(scope: dict[str, Any]) -> tuple[str, str]:
    """Address and port of the client."""
    host, port = scope.get("client") or ("", 0)
    return str(host), str(port)
