"""The Socket.IO server of a replica: python-socketio's interface, our transports, our fan-out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from moorage.cluster.local import LocalManager
from moorage.cluster.packets import BINARY_ACK, BINARY_EVENT, EVENT, Encoded, encode
from moorage.settings import Settings
from moorage.sockets.direct import Direct
from moorage.sockets.engine import Engine
from moorage.sockets.handover import SocketHttpProtocol
from moorage.sockets.incoming import DirectHandler, Incoming, Reply
from moorage.sockets.lifecycle import JOIN_TIMEOUT_S
from moorage.sockets.transport import SERVER_DISCONNECT

__all__ = ["DirectHandler", "Reply", "SocketServer"]

logger = logging.getLogger(__name__)

ASGIApp = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]],
    Awaitable[None],
]


class SocketServer(Incoming):
    """Serves Socket.IO at ``settings.socketio_path``.

    uvicorn must be given :attr:`http_protocol` (``uvicorn.Config(http=…)``) and the application :meth:`asgi`.

    ``direct`` maps an event of the default namespace to a handler that is called at once, without a task, with
    ``(sid, args, reply)``; ``reply`` is None when the client asked for no ack. Other events go to python-socketio
    handlers. ``connect_payload`` gives extra keys of the CONNECT packet. ``on_closed`` is told ``(sid, reason)``
    the moment a socket is known to be gone, before its disconnect handler runs and its rooms are left.
    ``on_heard`` is told ``(sid)`` when a pong arrives: all that was sent before the ping has arrived.
    ``slow_clients`` and ``malformed_clients`` count those that were cut for it.
    """

    def __init__(self, settings: Settings, manager: LocalManager) -> None:
        # Both libraries log every event, with its payload, as information.
        quiet = logging.getLogger("moorage.sockets.upstream")
        quiet.setLevel(logging.WARNING)
        super().__init__(
            client_manager=manager,
            logger=quiet,
            engineio_logger=quiet,
            ping_interval=settings.ping_interval / 1000,
            ping_timeout=settings.ping_timeout / 1000,
            max_http_buffer_size=settings.max_payload_bytes,
            max_buffer_bytes=settings.socket_max_buffer_bytes,
            cors_allowed_origins=settings.cors_allowed_origins,
        )
        self.eio.sink = self
        self.direct = {}
        self.connect_payload = _nothing
        self.on_closed = []
        self.on_heard = []
        self.join_timeout_s = JOIN_TIMEOUT_S
        self.slow_clients = 0
        self.malformed_clients = 0
        self._tasks = set()
        self._path = "/" + settings.socketio_path.strip("/")
        self.direct_posts: dict[bytes, Direct] = {}
        """Paths whose POST is answered where it arrives."""
        protocol = {"engine": self.eio, "socketio_path": self._path, "direct": self.direct_posts}
        self.http_protocol: type[asyncio.Protocol] = type(
            "SocketHttpProtocol", (SocketHttpProtocol,), protocol
        )

    def send_event(
        self, sid: str, event: str, *args: Any, on_ack: Callable[[list[Any]], None] | None = None
    ) -> int:
        """Write an event to one socket of the default namespace, now.

        Returns 0 if there is no such socket here, or it is about to go (``on_closed`` was told), else the ack id
        (1 without ``on_ack``). ``on_ack`` gets the ack's arguments; an ack that never comes is dropped with the
        socket or by :meth:`forget_ack`.
        Raises :class:`ValueError` or :class:`TypeError` for arguments that JSON cannot hold.
        """
        eio_sid = self.manager.transport_of(sid)
        if eio_sid is None or eio_sid not in self.eio.sockets:
            return 0
        if on_ack is None:
            return self.manager.push((eio_sid,), encode(EVENT, "/", None, [event, *args]))
        ack_id: int = self.manager._generate_ack_id(sid, lambda *values: on_ack(list(values)))
        try:
            packet = encode(EVENT, "/", ack_id, [event, *args])
        except (TypeError, ValueError):
            self.forget_ack(sid, ack_id)
            raise
        self.manager.push((eio_sid,), packet)
        return ack_id

    def push(self, sid: str, packet: Encoded) -> None:
        """Write a packet that was encoded before, e.g. for many, to one socket of the default namespace."""
        eio_sid = self.manager.transport_of(sid)
        if eio_sid is not None and eio_sid in self.eio.sockets:
            self.manager.push((eio_sid,), packet)

    def unsent(self, sid: str) -> int:
        """[bytes] that wait for a socket of the default namespace to read them."""
        socket = self.eio.sockets.get(self.manager.transport_of(sid) or "")
        return socket.unsent if socket is not None else 0

    def forget_ack(self, sid: str, ack_id: int) -> None:
        """The ack is not wanted any more; it will be ignored."""
        self.manager.take_callback(sid, ack_id)

    def close_socket(self, sid: str, reason: str = SERVER_DISCONNECT) -> None:
        """End a socket of the default namespace and its transport.

        With the default reason the client is sent a DISCONNECT first, after which Socket.IO clients do not
        come back by themselves; with any other (``"server shutting down"``) only the transport ends, so they do.
        """
        eio_sid = self.manager.eio_sid_from_sid(sid, "/")
        socket = self.eio.sockets.get(eio_sid) if eio_sid is not None else None
        if eio_sid is None or socket is None:
            return
        if reason == SERVER_DISCONNECT:
            self._push_disconnect(eio_sid, "/")
        socket.close_now(reason)

    async def disconnect(self, sid: str, namespace: str | None = None, ignore_queue: bool = False) -> None:
        """As in python-socketio: leave the namespace; the transport stays."""
        namespace = namespace or "/"
        if ignore_queue:
            here = self.manager.is_connected(sid, namespace)
        else:
            here = await self.manager.can_disconnect(sid, namespace)
        eio_sid = self.manager.eio_sid_from_sid(sid, namespace)
        if here and eio_sid is not None and self._begin_end(sid, namespace, SERVER_DISCONNECT):
            self._push_disconnect(eio_sid, namespace)
            await self._finish_end(sid, namespace, SERVER_DISCONNECT)
            socket = self.eio.sockets.get(eio_sid)
            if socket is not None:
                self._expect_join(socket.peer)

    def asgi(self, other: ASGIApp) -> ASGIApp:
        """Socket.IO at ``settings.socketio_path``, all else to ``other``."""

        async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
            if scope["type"] == "http" and scope["path"].rstrip("/") == self._path:
                await self.eio.handle_request(scope, receive, send)
            elif scope["type"] == "websocket" and scope["path"].rstrip("/") == self._path:
                logger.error("WebSockets of Socket.IO need uvicorn.Config(http=SocketServer.http_protocol)")
                await send({"type": "websocket.close", "code": 1011})
            else:
                await other(scope, receive, send)

        return app

    async def _send_packet(self, eio_sid: str, pkt: Any) -> None:
        # python-socketio sends a packet and its attachments one by one; here nothing comes between them.
        kind = pkt.packet_type - 3 if pkt.packet_type in (BINARY_EVENT, BINARY_ACK) else pkt.packet_type
        self.manager.push((eio_sid,), encode(kind, pkt.namespace or "/", pkt.id, pkt.data))

    def _engineio_server_class(self) -> type[Engine]:
        return Engine


def _nothing(sid: str) -> dict[str, Any]:
    return {}
