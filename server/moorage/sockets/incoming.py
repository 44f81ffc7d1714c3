"""What clients send: Engine.IO messages to packets, packets to handlers.

Everything up to a direct handler or an ack's callback happens in the call that read the bytes. Only connect and
disconnect handlers and events without a direct handler get a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from socketio import AsyncServer
from socketio.exceptions import ConnectionRefusedError as Refused

from moorage.cluster.local import LocalManager
from moorage.cluster.packets import (
    ACK,
    BINARY_ACK,
    BINARY_EVENT,
    CONNECT,
    CONNECT_ERROR,
    DISCONNECT,
    EVENT,
    Malformed,
    Packet,
    decode,
    encode,
    with_attachments,
)
from moorage.sockets.engine import CLIENT_DISCONNECT, TRANSPORT_ERROR, Engine, Peer
from moorage.sockets.limited import LimitedLog

logger = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 45.0
"""[s] A client that is in no namespace for this long is closed; connectTimeout of Node's socket.io."""

MAX_BACKLOG = 64
"""Packets a client may send before its CONNECT is answered; clients of ours and of Socket.IO send none."""

ATTACHED_BYTES_FACTOR = 10
"""All attachments of one packet together: this many times the largest message, as with Node's limit of 10."""

_malformed_log = LimitedLog(logger, 10.0)
_overflow_log = LimitedLog(logger, 10.0)


class Reply:
    """Sends the ack of one event, once."""

    __slots__ = ("_ack_id", "_eio_sid", "_manager", "_namespace")

    def __init__(self, manager: LocalManager, eio_sid: str, namespace: str, ack_id: int) -> None:
        self._manager: LocalManager | None = manager
        self._eio_sid = eio_sid
        self._namespace = namespace
        self._ack_id = ack_id

    def __call__(self, *args: Any) -> None:
        """Raises :class:`ValueError` or :class:`TypeError` for what JSON cannot hold; then it is not sent."""
        manager = self._manager
        if manager is not None:
            packet = encode(ACK, self._namespace, self._ack_id, list(args))
            self._manager = None
            manager.push((self._eio_sid,), packet)


DirectHandler = Callable[[str, list[Any], Reply | None], None]


class Incoming(AsyncServer):  # type: ignore[misc]
    """The receiving half of :class:`~moorage.sockets.server.SocketServer`; the engine's sink."""

    eio: Engine
    manager: LocalManager
    direct: dict[str, DirectHandler]
    connect_payload: Callable[[str], dict[str, Any]]
    on_closed: list[Callable[[str, str], None]]
    on_heard: list[Callable[[str], None]]
    join_timeout_s: float
    malformed_clients: int
    manager_initialized: bool
    slow_clients: int
    _tasks: set[asyncio.Task[None]]

    # -- Sink ----------------------------------------------------------------------------------------------
    def opened(self, eio_sid: str, environ: dict[str, Any]) -> Peer:
        """A transport is there; no namespace yet."""
        if not self.manager_initialized:
            self.manager_initialized = True
            self.manager.initialize()
        self.environ[eio_sid] = environ
        peer = Peer(eio_sid)
        self._expect_join(peer)
        return peer

    def text(self, peer: Peer, raw: bytes, offset: int) -> None:
        """One Socket.IO packet, from ``offset`` of ``raw``."""
        try:
            if peer.partial is not None:
                raise Malformed("text between attachments")
            packet = decode(raw, offset)
            if packet.attachments:
                if self.manager.sid_from_eio_sid(peer.eio_sid, packet.namespace) is None:
                    raise Malformed("binary before connect")
                peer.partial = packet
            else:
                self._take(peer, packet)
        except Malformed as error:
            self.malformed(peer, str(error))

    def binary(self, peer: Peer, data: bytes) -> None:
        """One attachment."""
        packet = peer.partial
        try:
            if packet is None:
                raise Malformed("attachment without a packet")
            peer.attachments.append(data)
            peer.attached_bytes += len(data)
            if peer.attached_bytes > ATTACHED_BYTES_FACTOR * self.eio.max_http_buffer_size:
                raise Malformed("attachments too large")
            if len(peer.attachments) == packet.attachments:
                whole = packet._replace(data=with_attachments(packet.data, peer.attachments))
                peer.partial, peer.attachments, peer.attached_bytes = None, [], 0
                self._take(peer, whole)
        except Malformed as error:
            self.malformed(peer, str(error))

    def heard(self, peer: Peer) -> None:
        """A pong."""
        for _, sid in self.manager.namespaces_of(peer.eio_sid):
            for callback in self.on_heard:
                _guarded("on_heard", callback, sid)

    def closed(self, peer: Peer, reason: str) -> None:
        """The transport is gone."""
        peer.closed = reason
        peer.partial, peer.attachments = None, []
        peer.backlog.clear()
        if peer.join_timer is not None:
            peer.join_timer.cancel()
        joined = self.manager.namespaces_of(peer.eio_sid)
        ending = [(namespace, sid) for namespace, sid in joined if self._begin_end(sid, namespace, reason)]
        if ending:
            self._spawn(self._ending(peer, ending, reason))
        else:
            self._forget(peer)

    async def _ending(self, peer: Peer, sockets: list[tuple[str, str]], reason: str) -> None:
        for namespace, sid in sockets:
            await self._finish_end(sid, namespace, reason)
        self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        """No handler asks any more for what is known of a client that is gone."""
        if not peer.connecting:
            self.environ.pop(peer.eio_sid, None)
            self.eio.ended.pop(peer.eio_sid, None)

    def overflow(self, peer: Peer) -> None:
        """The client does not read: more than ``socket_max_buffer_bytes`` wait for it."""
        if peer.closed is None:
            self.slow_clients += 1
            _overflow_log.warning("a client does not read what it is sent: closed")
            self._close_transport(peer, TRANSPORT_ERROR, abort=True)

    def malformed(self, peer: Peer, why: str) -> None:
        """The client breaks the protocol: it is closed."""
        if peer.closed is None:
            self.malformed_clients += 1
            _malformed_log.warning("a client breaks the protocol (%s): closed", why)
            self._close_transport(peer, TRANSPORT_ERROR)

    def _close_transport(self, peer: Peer, reason: str, *, abort: bool = False) -> None:
        socket = self.eio.sockets.get(peer.eio_sid)
        if socket is not None:
            socket.close_now(reason, abort=abort)

    # -- packets -------------------------------------------------------------------------------------------
    def _take(self, peer: Peer, packet: Packet) -> None:
        if peer.connecting:
            if len(peer.backlog) >= MAX_BACKLOG:
                raise Malformed("packets before connect")
            peer.backlog.append(packet)
        elif packet.type in (EVENT, BINARY_EVENT):
            self._take_event(peer, packet)
        elif packet.type in (ACK, BINARY_ACK):
            self._take_ack(peer, packet)
        elif packet.type == CONNECT:
            peer.connecting = True
            self._spawn(self._connecting(peer, packet))
        else:
            sid = self.manager.sid_from_eio_sid(peer.eio_sid, packet.namespace)
            if sid is not None and self._begin_end(sid, packet.namespace, CLIENT_DISCONNECT):
                self._spawn(self._finish_end(sid, packet.namespace, CLIENT_DISCONNECT, peer))

    def _take_event(self, peer: Peer, packet: Packet) -> None:
        namespace = packet.namespace
        sid = self.manager.sid_from_eio_sid(peer.eio_sid, namespace)
        if sid is None or not self.manager.is_connected(sid, namespace):
            return  # not there yet, or what was on its way when the server closed the namespace
        event, *args = packet.data
        handler = self.direct.get(event) if namespace == "/" else None
        if handler is not None:
            ack_id = packet.id
            reply = None if ack_id is None else Reply(self.manager, peer.eio_sid, namespace, ack_id)
            try:
                handler(sid, args, reply)
            except Exception:
                logger.exception("the handler of %s failed", event)
        elif self._has_handler(event, namespace):
            self._spawn(self._run_event(sid, peer.eio_sid, packet))

    def _has_handler(self, event: str, namespace: str) -> bool:
        return (
            self._get_event_handler(event, namespace, ())[0] is not None
            or self._get_namespace_handler(namespace, ())[0] is not None
        )

    async def _run_event(self, sid: str, eio_sid: str, packet: Packet) -> None:
        await self._handle_event_internal(self, sid, eio_sid, packet.data, packet.namespace, packet.id)

    def _take_ack(self, peer: Peer, packet: Packet) -> None:
        sid = self.manager.sid_from_eio_sid(peer.eio_sid, packet.namespace)
        callback = self.manager.take_callback(sid, packet.id) if sid and packet.id else None
        if callback is not None:
            result = _guarded("an ack's callback", callback, *packet.data)
            if asyncio.iscoroutine(result):
                self._spawn(result)

    # -- connect -------------------------------------------------------------------------------------------
    async def _connecting(self, peer: Peer, packet: Packet) -> None:
        try:
            await self._handle_connect(peer.eio_sid, packet.namespace, packet.data, peer)
        finally:
            peer.connecting = False
            while peer.backlog and not peer.connecting and peer.closed is None:
                try:
                    self._take(peer, peer.backlog.pop(0))
                except Malformed as error:
                    self.malformed(peer, str(error))
            if peer.closed is None:
                self._expect_join(peer)
            else:
                self._forget(peer)

    async def admit(self, eio_sid: str, namespace: str, auth: Any) -> str | None:
        """Give the socket its id; None refuses. A place for connection state recovery, which needs ``auth``."""
        sid: str | None = await self.manager.pre_connect(eio_sid, namespace)
        return sid

    async def _handle_connect(
        self, eio_sid: str, namespace: str, data: Any, peer: Peer | None = None
    ) -> None:
        sid = await self.admit(eio_sid, namespace, data) if self._serves(namespace) else None
        if sid is None:
            self._push(eio_sid, CONNECT_ERROR, namespace, {"message": "Invalid namespace"})
            return
        refusal = await self._ask_connect_handler(sid, eio_sid, namespace, data)
        if refusal is not None:
            self._push(eio_sid, CONNECT_ERROR, namespace, refusal)
            await self.manager.disconnect(sid, namespace, ignore_queue=True)
            return
        payload = {"sid": sid, **(_guarded("connect_payload", self.connect_payload, sid) or {})}
        self._push(eio_sid, CONNECT, namespace, payload)
        await self.manager.connect(sid, namespace)
        gone = peer.closed if peer is not None else None
        if gone is not None and self._begin_end(sid, namespace, gone):
            # The handler has agreed to a client that had left meanwhile: undo what it did.
            await self._finish_end(sid, namespace, gone)

    def _serves(self, namespace: str) -> bool:
        return (
            namespace in self.handlers
            or namespace in self.namespace_handlers
            or self.namespaces == "*"
            or namespace in self.namespaces
        )

    async def _ask_connect_handler(
        self, sid: str, eio_sid: str, namespace: str, data: Any
    ) -> dict[str, Any] | None:
        """None: welcome. Else the data of CONNECT_ERROR."""
        environ = self.environ.get(eio_sid, {})
        try:
            try:
                welcome = await self._trigger_event("connect", namespace, sid, environ, data or None)
            except TypeError:
                if data:
                    raise
                # python-socketio's older signature, without auth
                welcome = await self._trigger_event("connect", namespace, sid, environ)
        except Refused as error:
            refusal: dict[str, Any] = error.error_args
            return refusal
        except ConnectionRefusedError:
            return {"message": "Connection refused by server"}
        except Exception:
            logger.exception("the connect handler failed")
            return {"message": "Internal error"}
        return dict(Refused().error_args) if welcome is False else None

    def _expect_join(self, peer: Peer) -> None:
        """(Re)start the clock of a client that is in no namespace."""
        if peer.join_timer is not None:
            peer.join_timer.cancel()
            peer.join_timer = None
        if peer.closed is None and not peer.connecting and not self.manager.namespaces_of(peer.eio_sid):
            loop = asyncio.get_running_loop()
            peer.join_timer = loop.call_later(
                self.join_timeout_s, self._close_transport, peer, TRANSPORT_ERROR
            )

    # -- end of a socket -------------------------------------------------------------------------------------
    def _begin_end(self, sid: str, namespace: str, reason: str) -> bool:
        """Tell who must know at once. False: not connected, or told already."""
        if not self.manager.is_connected(sid, namespace):
            return False
        self.manager.pre_disconnect(sid, namespace)
        for callback in self.on_closed:
            _guarded("on_closed", callback, sid, reason)
        return True

    async def _finish_end(self, sid: str, namespace: str, reason: str, peer: Peer | None = None) -> None:
        """Run the disconnect handler, leave the rooms."""
        try:
            await self._trigger_event("disconnect", namespace, sid, reason)
        except Exception:
            logger.exception("the disconnect handler failed")
        await self.manager.disconnect(sid, namespace, ignore_queue=True)
        if peer is not None:
            self._expect_join(peer)

    # -- small ----------------------------------------------------------------------------------------------
    def _push(self, eio_sid: str, kind: int, namespace: str, data: Any, ack_id: int | None = None) -> None:
        self.manager.push((eio_sid,), encode(kind, namespace, ack_id, data))

    def _push_disconnect(self, eio_sid: str, namespace: str) -> None:
        self._push(eio_sid, DISCONNECT, namespace, None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a handler failed", exc_info=error)


def _guarded(what: str, callback: Callable[..., Any], *args: Any) -> Any:
    try:
        return callback(*args)
    except Exception:
        logger.exception("%s failed", what)
        return None
