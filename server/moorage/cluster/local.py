"""Rooms of this process and fan-out to its sockets: python-socketio's manager with other data structures.

python-socketio scans every room of the namespace at each disconnect and starts a task per recipient. Here a
disconnect costs as much as the socket has rooms, and a broadcast is encoded once and written to each socket.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from socketio import AsyncManager

from moorage.cluster import checks
from moorage.cluster.packets import EVENT, Encoded, arguments, encode

if TYPE_CHECKING:
    from moorage.cluster.recovery import Recovery

logger = logging.getLogger(__name__)

RoomCallback = Callable[[str, str, str], None]


class _Namespace:
    """Sockets and rooms of one namespace. The room that every socket has for itself is not stored."""

    __slots__ = ("by_eio", "connected", "eio", "leaving", "rooms", "rooms_of")

    def __init__(self) -> None:
        self.eio: dict[str, str] = {}  # sid -> eio_sid, from pre_connect to disconnect
        self.by_eio: dict[str, str] = {}
        self.connected: dict[str, str] = {}  # those whose connect handler has agreed
        self.leaving: set[str] = set()
        self.rooms: dict[str, dict[str, str]] = {}  # room -> sid -> eio_sid
        self.rooms_of: dict[str, set[str]] = {}


class LocalManager(AsyncManager):  # type: ignore[misc]
    """Rooms of this process. The methods that are not coroutines never wait and cost what they touch.

    ``on_join`` and ``on_leave`` are told ``(namespace, room, sid)`` after the fact, the latter also once per
    room when a socket goes or a room is closed; a socket's own room is never told.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_join: list[RoomCallback] = []
        self.on_leave: list[RoomCallback] = []
        self._namespaces: dict[str, _Namespace] = {}
        self._counters: dict[str, int] = {}
        self.deliveries = 0
        """Copies of broadcasts written to sockets of this process."""
        self.recovery: Recovery | None = None
        """Connection state recovery; None: off, or not offered by this manager."""

    # -- our interface -----------------------------------------------------------------------------------
    def join(self, sid: str, room: str, namespace: str = "/") -> bool:
        """True: newly in. False: was in, or no such socket (any more).

        Raises :class:`ValueError` for the room of another socket.
        """
        ns = self._namespaces.get(namespace)
        if ns is None or sid not in ns.eio or sid in ns.leaving:
            return False
        return self._enter(ns, namespace, sid, room)

    def leave(self, sid: str, room: str, namespace: str = "/") -> bool:
        """True: was in. A socket never leaves its own room."""
        ns = self._namespaces.get(namespace)
        if ns is None or room not in ns.rooms_of.get(sid, ()):
            return False
        ns.rooms_of[sid].discard(room)
        self._take_out(ns, sid, room)
        self._tell(self.on_leave, namespace, room, sid)
        return True

    def rooms_of(self, sid: str, namespace: str = "/") -> frozenset[str]:
        """Rooms of a socket, without its own."""
        ns = self._namespaces.get(namespace)
        return frozenset(ns.rooms_of.get(sid, ())) if ns else frozenset()

    def members(self, room: str, namespace: str = "/") -> Collection[str]:
        """Sids in a room; a live view, so copy it before changing rooms."""
        ns = self._namespaces.get(namespace)
        return self._room(ns, room).keys() if ns else ()

    def transport_of(self, sid: str, namespace: str = "/") -> str | None:
        """Transport (eio_sid) of a socket that can be sent to; None once it is about to go."""
        ns = self._namespaces.get(namespace)
        return ns.eio.get(sid) if ns is not None and sid not in ns.leaving else None

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
        """Write an event to the sockets of this process and return how many got it, each once.

        No ``rooms`` means everybody who is connected to the namespace. ``except_`` names rooms or sids.
        A volatile event is left out where the socket is behind with reading. Raises :class:`ValueError` or
        :class:`TypeError` for arguments that JSON cannot hold.
        """
        targets = self._targets(namespace, rooms, except_)
        if not targets:
            return 0
        packet = encode(EVENT, namespace, None, [event, *args])
        count = self.push(targets.values(), packet, volatile=volatile)
        self.deliveries += count
        return count

    def push(self, eio_sids: Collection[str], packet: Encoded, *, volatile: bool = False) -> int:
        """Write an encoded packet to these sockets and return how many there were.

        To one socket at once; to several at the end of the loop's turn, so that broadcasts that come together leave
        in one write per socket. Runs no callback: a socket that is cut because of it goes in a later turn.
        """
        sockets = self.server.eio.sockets
        several = len(eio_sids) > 1
        count = 0
        for eio_sid in eio_sids:
            socket = sockets.get(eio_sid)
            if socket is None or (volatile and socket.behind):
                continue
            if several:
                socket.post(packet)
            else:
                socket.push(packet)
            count += 1
        return count

    def emit_now(
        self,
        event: str,
        args: Sequence[Any],
        rooms: Collection[str],
        except_: Collection[str] = (),
        namespace: str = "/",
        *,
        volatile: bool = False,
    ) -> None:
        """Deliver here at once, and on other replicas where there are any. Never waits."""
        self.emit_local(event, args, rooms, except_, namespace, volatile=volatile)

    async def emit_counted(
        self,
        counter: str,
        event: str,
        payload: dict[str, Any],
        rooms: Collection[str],
        except_: Collection[str] = (),
    ) -> int:
        """Set ``payload["seq"]`` to the next number of ``counter`` (dense, from 1), deliver, return it."""
        seq = self._counters.get(counter, 0) + 1
        self._counters[counter] = seq
        payload["seq"] = seq
        self.emit_local(event, [payload], rooms, except_)
        return seq

    def namespaces_of(self, eio_sid: str) -> list[tuple[str, str]]:
        """``(namespace, sid)`` of every namespace that a transport has joined or is joining."""
        return [(name, ns.by_eio[eio_sid]) for name, ns in self._namespaces.items() if eio_sid in ns.by_eio]

    def take_callback(self, sid: str, ack_id: int) -> Callable[..., Any] | None:
        """Remove and return the callback that waits for this ack; None if there is none."""
        waiting = self.callbacks.get(sid)
        return waiting.pop(ack_id, None) if waiting and ack_id else None

    # -- python-socketio: connecting and leaving ------------------------------------------------------------
    def basic_pre_connect(self, eio_sid: str, namespace: str, sid: str | None = None) -> str | None:
        """Register a socket whose connect handler has not run; ``sid`` forces its id (a recovered one).

        None: the transport is in this namespace already, or the id is taken.
        """
        ns = self._namespaces.get(namespace) or _Namespace()
        if sid is None:
            sid = str(self.server.eio.generate_id())
        if eio_sid in ns.by_eio or sid in ns.eio:
            return None
        self._namespaces[namespace] = ns
        ns.eio[sid] = eio_sid
        ns.by_eio[eio_sid] = sid
        return sid

    async def pre_connect(self, eio_sid: str, namespace: str) -> str | None:
        """See :meth:`basic_pre_connect`."""
        return self.basic_pre_connect(eio_sid, namespace)

    async def connect(self, sid: str, namespace: str) -> str | None:
        """The connect handler has agreed. With an ``eio_sid`` not pre-connected: both steps at once."""
        if not self.is_pre_connected(sid, namespace):
            fresh = await self.pre_connect(sid, namespace)
            if fresh is None:
                return None
            sid = fresh
        ns = self._namespaces[namespace]
        ns.connected[sid] = ns.eio[sid]
        return sid

    def is_pre_connected(self, sid: str, namespace: str) -> bool:
        """Between ``pre_connect`` and ``connect``."""
        ns = self._namespaces.get(namespace)
        return ns is not None and sid in ns.eio and sid not in ns.connected

    def is_connected(self, sid: str, namespace: str) -> bool:
        """Connected and not about to go."""
        ns = self._namespaces.get(namespace)
        return ns is not None and sid in ns.connected and sid not in ns.leaving

    def get_namespaces(self) -> Collection[str]:
        """Namespaces with at least one socket."""
        return self._namespaces.keys()

    def sid_from_eio_sid(self, eio_sid: str, namespace: str) -> str | None:
        """Sid of a transport in a namespace."""
        ns = self._namespaces.get(namespace)
        return ns.by_eio.get(eio_sid) if ns else None

    def eio_sid_from_sid(self, sid: str, namespace: str) -> str | None:
        """Transport of a sid."""
        ns = self._namespaces.get(namespace)
        return ns.eio.get(sid) if ns else None

    def pre_disconnect(self, sid: str, namespace: str) -> str | None:
        """Not connected from now on; rooms stay until the disconnect handler has run."""
        ns = self._namespaces.get(namespace)
        if ns is None or sid not in ns.eio:
            return None
        ns.leaving.add(sid)
        return ns.eio[sid]

    def basic_disconnect(self, sid: str, namespace: str, **kwargs: Any) -> None:
        """Forget a socket, its rooms and the acks it owes."""
        self.callbacks.pop(sid, None)
        ns = self._namespaces.get(namespace)
        if ns is None or sid not in ns.eio:
            return
        del ns.by_eio[ns.eio.pop(sid)]
        ns.connected.pop(sid, None)
        ns.leaving.discard(sid)
        rooms = ns.rooms_of.pop(sid, ())
        for room in rooms:
            self._take_out(ns, sid, room)
        if not ns.eio:
            del self._namespaces[namespace]
        for room in rooms:
            self._tell(self.on_leave, namespace, room, sid)

    # -- python-socketio: rooms ---------------------------------------------------------------------------
    def is_sid_room(self, namespace: str, room: str) -> bool:
        """True for the room that a socket has for itself."""
        ns = self._namespaces.get(namespace)
        return ns is not None and room in ns.eio

    def basic_enter_room(self, sid: str, namespace: str, room: str, eio_sid: str | None = None) -> None:
        """Raises :class:`ValueError`: not connected to the namespace, or the room of another socket."""
        ns = self._namespaces.get(namespace)
        if ns is None or sid not in ns.eio:
            raise ValueError("sid is not connected to requested namespace")
        self._enter(ns, namespace, sid, room)

    def basic_leave_room(self, sid: str, namespace: str, room: str) -> None:
        """See :meth:`leave`."""
        self.leave(sid, room, namespace)

    def basic_close_room(self, room: str, namespace: str) -> None:
        """Everybody leaves. Raises :class:`ValueError` for the room of a socket."""
        if self.is_sid_room(namespace, room):
            raise ValueError("cannot close a sid room")
        for sid in list(self.members(room, namespace)):
            self.leave(sid, room, namespace)

    def get_participants(self, namespace: str, room: Any) -> Iterator[tuple[str, str]]:
        """``(sid, eio_sid)`` of a room, of several (a list; an empty one: of nobody), or of everybody (None)."""
        rooms = names_of(room)
        if rooms or room is None:
            yield from list(self._targets(namespace, rooms, ()).items())

    def get_rooms(self, sid: str, namespace: str) -> list[str]:
        """Rooms of a socket, its own among them."""
        ns = self._namespaces.get(namespace)
        return [sid, *ns.rooms_of.get(sid, ())] if ns and sid in ns.eio else []

    # -- python-socketio: emit ---------------------------------------------------------------------------
    async def emit(
        self,
        event: str,
        data: Any,
        namespace: str,
        room: Any = None,
        skip_sid: Any = None,
        callback: Callable[..., Any] | None = None,
        to: Any = None,
        **kwargs: Any,
    ) -> None:
        """As in python-socketio: a tuple is several arguments; ``callback`` once per recipient; no rooms: nobody.

        Yields to the loop once, so that a task that emits for long does not keep buffers from being sent.
        """
        checks.event_name(event)
        args = arguments(data)
        chosen = to if to is not None else room
        rooms, skip = names_of(chosen), names_of(skip_sid)
        if chosen is not None and not rooms:
            return
        if callback is None:
            self.emit_local(event, args, rooms, skip, namespace)
        else:
            for sid, eio_sid in list(self._targets(namespace, rooms, skip).items()):
                ack_id = self._generate_ack_id(sid, callback)
                self.push((eio_sid,), encode(EVENT, namespace, ack_id, [event, *args]))
        await asyncio.sleep(0)

    async def trigger_callback(self, sid: str, id: int, data: list[Any]) -> None:
        """Run the callback that waits for this ack; an unknown ack is ignored."""
        callback = self.take_callback(sid, id)
        if callback is not None:
            result = callback(*data)
            if inspect.iscoroutine(result):
                await result

    # -- inside ------------------------------------------------------------------------------------------
    def _enter(self, ns: _Namespace, namespace: str, sid: str, room: str) -> bool:
        if room == sid:
            return False
        if room in ns.eio:
            raise ValueError("cannot enter a sid room")
        mine = ns.rooms_of.setdefault(sid, set())
        if room in mine:
            return False
        mine.add(room)
        ns.rooms.setdefault(room, {})[sid] = ns.eio[sid]
        self._tell(self.on_join, namespace, room, sid)
        return True

    def _take_out(self, ns: _Namespace, sid: str, room: str) -> None:
        members = ns.rooms[room]
        del members[sid]
        if not members:
            del ns.rooms[room]

    def _room(self, ns: _Namespace, room: str) -> Mapping[str, str]:
        if room in ns.eio:
            return {room: ns.eio[room]}
        return ns.rooms.get(room, {})

    def _targets(self, namespace: str, rooms: Collection[str], except_: Collection[str]) -> Mapping[str, str]:
        ns = self._namespaces.get(namespace)
        if ns is None:
            return {}
        rooms, except_ = names_of(rooms), names_of(except_)
        found: Mapping[str, str]
        if not rooms:
            found = ns.connected
        elif len(rooms) == 1:
            found = self._room(ns, next(iter(rooms)))
        else:
            found = {sid: eio_sid for room in rooms for sid, eio_sid in self._room(ns, room).items()}
        if found and except_:
            out = {sid for room in except_ for sid in self._room(ns, room)}
            if out:
                return {sid: eio_sid for sid, eio_sid in found.items() if sid not in out}
        return found

    def _tell(self, callbacks: list[RoomCallback], namespace: str, room: str, sid: str) -> None:
        for callback in callbacks:
            try:
                callback(namespace, room, sid)
            except Exception:
                logger.exception("a callback of a room change failed")


def names_of(rooms: Any) -> Collection[str]:
    """One name, several or None, as a collection."""
    if rooms is None:
        return ()
    return (rooms,) if isinstance(rooms, str) or not isinstance(rooms, Collection) else rooms
