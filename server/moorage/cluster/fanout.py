"""From an entry of the stream, or a question of another node, to the sockets of this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import socketio
from engineio.packet import MESSAGE
from engineio.packet import Packet as EngineIOPacket

from moorage.cluster import wire
from moorage.cluster.local import LocalManager
from moorage.cluster.packets import EVENT, Encoded, encode
from moorage.cluster.wire import Opts

logger = logging.getLogger(__name__)

BEHIND_PACKETS = 1000
"""A plain Engine.IO socket with so many packets in its queue is behind with reading."""
TRANSPORT_CLOSE = "transport close"


class FanOut(LocalManager):
    """Writes to sockets, with or without the offset that connection state recovery needs.

    ``socket_data(namespace, sid)``, if set, gives what other nodes see as a socket's data.
    """

    def __init__(self) -> None:
        super().__init__()
        self.socket_data: Callable[[str, str], Any] | None = None
        self._sockets_push: bool | None = None
        """The server's sockets are ours; known with the first of them."""
        self.known_sid: Callable[[str, str], Awaitable[str | None]] | None = None
        """Gives a connecting client the sid of its last connection: :class:`moorage.cluster.server.AsyncServer`'s."""
        self._cutting: set[asyncio.Task[None]] = set()
        self.on_join.append(self._room_changed)
        self.on_leave.append(self._room_changed)

    def set_server(self, server: Any) -> None:
        """python-socketio's hook: the server that this is the manager of."""
        if not server.is_asyncio_based():
            raise TypeError(
                f"{type(self).__name__} is for socketio.AsyncServer, not for {type(server).__name__}"
            )
        if self.recovery is not None and type(server) is socketio.AsyncServer:
            logger.warning(
                "recovery_secret has no effect: use moorage.cluster.AsyncServer, not socketio.AsyncServer"
            )
        super().set_server(server)

    def _room_changed(self, namespace: str, room: str, sid: str) -> None:
        # Rooms that the connect handler gives are given again by it.
        recovery = self.recovery
        if recovery is not None and sid not in recovery.unaware and self.is_connected(sid, namespace):
            recovery.journal.changed(namespace, sid)

    # -- bytes out -------------------------------------------------------------------------------------
    def push(self, eio_sids: Collection[str], packet: Encoded, *, volatile: bool = False) -> int:
        """See :meth:`LocalManager.push`; also to the sockets of a plain ``socketio.AsyncServer``."""
        if self._sockets_push is None:
            first = next(iter(self.server.eio.sockets.values()), None)
            if first is None:
                return 0
            self._sockets_push = hasattr(first, "push")
        if self._sockets_push:
            return super().push(eio_sids, packet, volatile=volatile)
        count = 0
        for eio_sid in eio_sids:
            socket = self.server.eio.sockets.get(eio_sid)
            if socket is not None and not socket.closed:
                # Packets of their own: engineio keeps the first encoding, be it for polling or for WebSocket.
                for part in (packet.text.decode(), *packet.attachments):
                    socket.queue.put_nowait(EngineIOPacket(MESSAGE, part))
                count += 1
        return count

    def basic_disconnect(self, sid: str, namespace: str, **kwargs: Any) -> None:
        """See :meth:`LocalManager.basic_disconnect`."""
        super().basic_disconnect(sid, namespace, **kwargs)
        if self.recovery is not None:
            self.recovery.forget(namespace, sid)

    def is_behind(self, eio_sid: str) -> bool | None:
        """The client does not read as fast as it is sent to; None: it is gone."""
        socket = self.server.eio.sockets.get(eio_sid)
        if socket is None or socket.closed:
            return None
        return bool(socket.behind) if self._sockets_push else socket.queue.qsize() > BEHIND_PACKETS

    def cut(self, eio_sid: str) -> None:
        """End a transport so that its client comes again."""
        socket = self.server.eio.sockets.get(eio_sid)
        if socket is None:
            return
        if hasattr(socket, "close_now"):
            socket.close_now(TRANSPORT_CLOSE, abort=True)
        else:
            task = asyncio.get_running_loop().create_task(
                socket.close(wait=False, abort=True, reason=TRANSPORT_CLOSE)
            )
            self._cutting.add(task)
            task.add_done_callback(self._cutting.discard)

    def basic_pre_connect(self, eio_sid: str, namespace: str, sid: str | None = None) -> str | None:
        """See :meth:`LocalManager.basic_pre_connect`."""
        made = super().basic_pre_connect(eio_sid, namespace, sid)
        if made is not None and self.recovery is not None:
            self.recovery.unaware.add(made)  # until it was given a private id
        return made

    async def pre_connect(self, eio_sid: str, namespace: str) -> str | None:
        """See :meth:`LocalManager.pre_connect`; :attr:`known_sid` is asked first."""
        sid = await self.known_sid(eio_sid, namespace) if self.known_sid is not None else None
        return sid if sid is not None else await super().pre_connect(eio_sid, namespace)

    async def settled(self) -> None:
        """What was emitted before is on its way to the sockets of this process. Waits for a moment at most."""

    # -- events ----------------------------------------------------------------------------------------
    def event_packet(self, namespace: str, body: wire.Broadcast, offset: bytes | None) -> Encoded | None:
        """The packet of a broadcast, with ``offset`` as its last argument; None: it cannot be decoded."""
        text = body.json()
        if text is not None:
            head = b"2" if namespace == "/" else b"2%b," % namespace.encode()
            tail = b"" if offset is None else b',"%b"]' % offset
            return Encoded(head + (text if offset is None else text[:-1] + tail))
        data = body.event()
        if isinstance(data, wire.Malformed):
            return None
        return encode(EVENT, namespace, None, data if offset is None else [*data, offset.decode()])

    def deliver(self, namespace: str, body: wire.Broadcast, entry_id: bytes) -> bool:
        """Send a broadcast of the stream to its recipients here. False: it cannot be decoded."""
        targets = self._targets(namespace, body.opts.room_names, body.opts.except_names)
        if not targets:
            return True
        volatile = body.opts.flag("volatile") is True
        if self.recovery is None:
            packet = self.event_packet(namespace, body, None)
            if packet is None:
                return False
            self.deliveries += self.push(targets.values(), packet, volatile=volatile)
            return True
        offset = entry_id if body.is_recoverable or body.ends_with_text() else None
        return self._send(
            namespace,
            targets,
            entry_id if body.is_recoverable else None,
            lambda: self.event_packet(namespace, body, offset),
            lambda: self.event_packet(namespace, body, None),
            volatile=volatile,
        )

    def _send(
        self,
        namespace: str,
        targets: Mapping[str, str],
        entry_id: bytes | None,
        with_offset: Callable[[], Encoded | None],
        without: Callable[[], Encoded | None],
        *,
        volatile: bool = False,
    ) -> bool:
        """``entry_id``: of an event that is replayed, so that sockets in their replay get it once."""
        recovery = self.recovery
        assert recovery is not None
        held = recovery.held
        if held:
            there = {sid: held[namespace, sid] for sid in targets if (namespace, sid) in held}
            if there:
                targets = {sid: eio_sid for sid, eio_sid in targets.items() if sid not in there}
                packet = with_offset()
                if packet is None:
                    return False
                for socket in there.values():
                    socket.add(entry_id, packet)
        unaware = recovery.unaware
        if unaware:
            plain = [eio_sid for sid, eio_sid in targets.items() if sid in unaware]
            if plain:
                packet = without()
                if packet is None:
                    return False
                self.deliveries += self.push(plain, packet, volatile=volatile)
                targets = {sid: eio_sid for sid, eio_sid in targets.items() if sid not in unaware}
        if targets:
            packet = with_offset()
            if packet is None:
                return False
            self.deliveries += self.push(targets.values(), packet, volatile=volatile)
        return True

    def emit_local(
        self,
        event: str,
        args: Sequence[Any],
        rooms: Collection[str],
        except_: Collection[str] = (),
        namespace: str = "/",
        *,
        volatile: bool = False,
    ) -> int:
        """See :meth:`LocalManager.emit_local`.

        Such events are not recovered. Socket.IO clients take any last argument that is a text for an offset, so
        with recovery on one that is gets the present one behind it.
        """
        if self.recovery is None or not isinstance(args[-1] if args else event, str):
            return super().emit_local(event, args, rooms, except_, namespace, volatile=volatile)
        targets = self._targets(namespace, rooms, except_)
        offset = self.recovery.position(namespace).decode()
        before = self.deliveries
        self._send(
            namespace,
            targets,
            None,
            lambda: encode(EVENT, namespace, None, [event, *args, offset]),
            lambda: encode(EVENT, namespace, None, [event, *args]),
            volatile=volatile,
        )
        return self.deliveries - before

    # -- what other nodes want ---------------------------------------------------------------------------
    def matching(self, namespace: str, opts: Opts) -> Mapping[str, str]:
        """Sockets here that ``opts`` means: sid -> eio_sid."""
        return dict(self._targets(namespace, opts.room_names, opts.except_names))

    def describe(self, namespace: str, sid: str) -> dict[str, Any]:
        """``{id, handshake, rooms, data}``; the handshake stays here, it holds tokens."""
        data = self.socket_data(namespace, sid) if self.socket_data is not None else {}
        return {"id": sid, "handshake": {}, "rooms": self.get_rooms(sid, namespace), "data": data}

    def emit_acked(
        self, namespace: str, targets: Mapping[str, str], data: list[Any], on_ack: Callable[..., Any]
    ) -> Callable[[], None]:
        """Emit with an ack each; the returned function stops waiting for the acks."""
        waiting = []
        for sid, eio_sid in targets.items():
            ack_id = self._generate_ack_id(sid, on_ack)
            waiting.append((sid, ack_id))
            self.push((eio_sid,), encode(EVENT, namespace, ack_id, data))

        def forget() -> None:
            for sid, ack_id in waiting:
                self.take_callback(sid, ack_id)

        return forget
