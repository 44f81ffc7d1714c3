"""What clients send: Engine.IO messages to packets, packets to handlers.

Everything up to a direct handler or an ack's callback happens in the call that read the bytes. Only connect and
disconnect handlers and events without a direct handler get a task.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from moorage.cluster.local import LocalManager
from moorage.cluster.packets import (
    ACK,
    BINARY_ACK,
    BINARY_EVENT,
    CONNECT,
    EVENT,
    Malformed,
    Packet,
    decode,
    encode,
    with_attachments,
)
from moorage.sockets.lifecycle import Lifecycle, guarded
from moorage.sockets.limited import LimitedLog
from moorage.sockets.transport import CLIENT_DISCONNECT, TRANSPORT_ERROR, Peer

logger = logging.getLogger(__name__)

MAX_BACKLOG = 64
"""Packets a client may send before its CONNECT is answered; clients of ours and of Socket.IO send none."""

ATTACHED_BYTES_FACTOR = 10
"""All attachments of one packet together: this many times the largest message, as with Node's limit of 10."""

_malformed_log = LimitedLog(logger, 10.0)
_overflow_log = LimitedLog(logger, 10.0)


class Reply:
    """Sends the ack of one event, once."""

    __slots__ = ("_ack_id", "_manager", "_namespace", "_sid")

    def __init__(self, manager: LocalManager, sid: str, namespace: str, ack_id: int) -> None:
        self._manager: LocalManager | None = manager
        self._sid = sid
        self._namespace = namespace
        self._ack_id = ack_id

    def __call__(self, *args: Any) -> None:
        """Raises :class:`ValueError` or :class:`TypeError` for what JSON cannot hold; then it is not sent."""
        manager = self._manager
        if manager is None:
            return
        packet = encode(ACK, self._namespace, self._ack_id, list(args))
        self._manager = None
        # The socket may have another transport than when it asked, or none at the moment.
        eio_sid = manager.transport_of(self._sid, self._namespace)
        if eio_sid is not None:
            manager.push((eio_sid,), packet)
        elif manager.recovery is not None:
            manager.recovery.keep(self._namespace, self._sid, packet)


DirectHandler = Callable[[str, list[Any], Reply | None], None]


class Incoming(Lifecycle):
    """The receiving half of :class:`~moorage.sockets.server.SocketServer`; with its base the engine's sink."""

    direct: dict[str, DirectHandler]
    on_heard: list[Callable[[str], None]]
    malformed_clients: int
    slow_clients: int

    # -- Sink ----------------------------------------------------------------------------------------------
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
                guarded("on_heard", callback, sid)

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
            reply = None if ack_id is None else Reply(self.manager, sid, namespace, ack_id)
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
            result = guarded("an ack's callback", callback, *packet.data)
            if inspect.iscoroutine(result):
                self._spawn(result)

    def take_backlog(self, peer: Peer) -> None:
        while peer.backlog and not peer.connecting and peer.closed is None:
            try:
                self._take(peer, peer.backlog.pop(0))
            except Malformed as error:
                self.malformed(peer, str(error))
