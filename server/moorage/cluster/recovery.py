"""Connection state recovery: a client that was cut gets what it missed and is the same socket again.

A client names its private id (:mod:`~moorage.cluster.pids`) and the id of the last entry that it got. Any node can
serve it, also when its own was killed, as everything is in the private id and in the stream:

1. id, identity, window and offset are checked; what does not fit connects as a new socket;
2. the socket gets its old sid and is *held*: what comes for it from now on waits;
3. the connect handler runs, then the rooms it had joined later are joined; this is the place in the stream from
   which on it is served live. Node sends what was missed before CONNECT; a client that is cut in the middle of
   that emits it twice. Here CONNECT goes first, so that every event moves the client's offset at once;
4. the stream is read from the offset up to that place, in pages, then what waited is sent.

Entries are delivered in the order of the stream on every node, so an offset stands for all entries before it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from typing import Any, Protocol

from moorage.cluster import wire
from moorage.cluster.changes import OFFSET, Change, Changes, first_place
from moorage.cluster.journal import Journal
from moorage.cluster.packets import Encoded
from moorage.cluster.pids import Pid, Pids
from moorage.cluster.sessions import Marker, Sessions, Told
from moorage.cluster.writer import StreamId, parse_id
from moorage.errors import BackplaneError

logger = logging.getLogger(__name__)

_PYTHON_ENGINEIO = re.compile(r"(?:^|&)transport=[a-z]+&EIO=4(?:&|$)")
"""How python-engineio's clients write their query; JavaScript and all others seen put EIO first."""
HELD_MAX = 10_000
"""Packets that wait for one socket during its replay; a replay that cannot keep up ends the connection."""
KEPT_MAX = 256
"""Acks kept for one socket: as many as it may have calls in flight."""
DRAIN_BOUND_S = 20.0
"""How long a replay waits for a client that does not read; then the connection ends."""
LOOK_S = 0.02
"""Distance of looks at a client that is behind with reading."""
OLD_SOCKET_BOUND_S = 1.0
"""How long the old socket of the same sid may take to end."""


class Log(Protocol):
    """Entries in the order of delivery. Every method is bounded; the coroutines raise :class:`BackplaneError`."""

    def position(self, namespace: str) -> bytes:
        """The last entry that was delivered here."""

    async def placed(self, namespace: str) -> bool:
        """There is such a position, or is within a moment."""

    async def holds(self, namespace: str, offset: bytes) -> bool:
        """Whether everything after ``offset`` is still there."""

    def missed(
        self, namespace: str, mine: Collection[str], after: bytes, until: bytes
    ) -> AsyncIterator[list[tuple[bytes, wire.Broadcast]]]:
        """Recoverable broadcasts to ``mine`` (rooms and sid) behind ``after`` and not behind ``until``, in order,
        in parts that may be empty."""

    async def told(self, namespace: str, sid: str, after: bytes) -> list[tuple[str, Told]]:
        """What markers behind ``after`` tell of a socket: node and content."""

    async def changes(self, namespace: str, after: StreamId) -> list[Change]:
        """Rooms that sockets were made to join or leave by entries behind ``after``."""

    def sessions(self, namespace: str) -> Sessions:
        """What is known of the sockets of a namespace."""

    async def learn(self, namespace: str, pid: Pid) -> None:
        """Read markers of the past until all of ``pid`` is known, or there are no more."""

    def stop(self) -> None:
        """Keep nothing any more."""


class Sockets(Protocol):
    """What is needed of the manager."""

    def join(self, sid: str, room: str, namespace: str = "/") -> bool: ...
    def leave(self, sid: str, room: str, namespace: str = "/") -> bool: ...
    def rooms_of(self, sid: str, namespace: str = "/") -> frozenset[str]: ...
    def basic_pre_connect(self, eio_sid: str, namespace: str, sid: str | None = None) -> str | None: ...
    def eio_sid_from_sid(self, sid: str, namespace: str) -> str | None: ...
    def push(self, eio_sids: Collection[str], packet: Encoded, *, volatile: bool = False) -> int: ...
    def is_behind(self, eio_sid: str) -> bool | None: ...
    def cut(self, eio_sid: str) -> None: ...
    def event_packet(self, namespace: str, body: wire.Broadcast, offset: bytes | None) -> Encoded | None: ...


class Held:
    """A socket between its return and the end of its replay."""

    __slots__ = ("changes", "eio_sid", "full", "offset", "pid", "waiting")

    def __init__(self, eio_sid: str, pid: str, offset: bytes, changes: Changes) -> None:
        self.eio_sid, self.pid, self.offset, self.changes = eio_sid, pid, offset, changes
        self.waiting: list[tuple[bytes | None, Encoded]] = []
        self.full = False

    def add(self, entry_id: bytes | None, packet: Encoded) -> None:
        """A packet that has come meanwhile; ``entry_id``: that of one that the replay may have, too."""
        if len(self.waiting) < HELD_MAX:
            self.waiting.append((entry_id, packet))
        else:
            self.full = True


class Recovery:
    """Which sockets can come back, and their return. One per manager.

    ``identify(auth)``: who a CONNECT packet proves to come from, as text; None if it proves nothing: such a client
    is never recovered. ``identity_of(namespace, sid)``: the same of a socket whose connect handler agreed.
    ``state_of(namespace, sid)``: what is to be kept with a socket besides its rooms, plain JSON or None;
    ``restore(namespace, sid, rooms, state)`` joins the rooms that were joined after connecting.
    ``on_recovered(namespace, sid)``: it is back.
    """

    def __init__(
        self,
        sockets: Sockets,
        log: Log,
        *,
        node: str,
        secret: str,
        window_ms: int,
        append: Callable[[str, dict[str, Any]], None] | None,
    ) -> None:
        """``node``: this one. ``append(namespace, data)`` writes a marker; None where there are no other nodes."""
        if not 0 < window_ms < 2**31:
            raise ValueError("the recovery window must be from 1 to 2147483647 ms")
        self._sockets, self._log, self._pids, self._node = sockets, log, Pids(secret), node
        self.journal = Journal(node, log.sessions, append, self._describe, log.position)
        self.identify: Callable[[Any], Awaitable[str | None]] = _nobody
        self.identity_of: Callable[[str, str], str] = lambda namespace, sid: ""
        self.state_of: Callable[[str, str], Any] = lambda namespace, sid: None
        self.restore: Callable[[str, str, Collection[str], Any], None] = self._join_all
        self.on_recovered: list[Callable[[str, str], None]] = []
        self.held: dict[tuple[str, str], Held] = {}
        self.unaware: set[str] = set()
        """Sockets whose client was given no private id and must not be sent offsets."""
        self.changes: list[Changes] = []
        """To be told of changes of rooms: those of sockets that are on their way back."""
        self._kept: dict[tuple[str, str], list[Encoded]] = {}
        self.on_return: Callable[[bool], None] = lambda recovered: None
        """A client named a private id, and was recovered or became a new socket."""

    # -- connecting ------------------------------------------------------------------------------------
    async def admit(self, eio_sid: str, namespace: str, auth: Any, identity: str | None = None) -> str | None:
        """Give a returning client its old sid and hold what comes for it; None: it is to connect as a new one.

        ``identity``: who it is, where that is known; else ``identify`` is asked.
        Waits for the place in the stream that any private id needs, a new one too.
        """
        await self._log.placed(namespace)
        if not isinstance(auth, dict) or auth.get("pid") is None:
            return None
        sid, changes = None, Changes(namespace)
        self.changes.append(changes)
        try:
            sid = await self._admit(eio_sid, namespace, auth, identity, changes)
        except BackplaneError:
            pass
        finally:
            if sid is None:
                self.changes.remove(changes)
                self.on_return(False)
        return sid

    async def _admit(
        self, eio_sid: str, namespace: str, auth: dict[str, Any], identity: str | None, changes: Changes
    ) -> str | None:
        pid = self._pids.read(auth["pid"])
        if pid is None or pid.namespace != namespace:
            return None
        offset = auth.get("offset")
        if offset is None:
            offset = pid.start.decode()  # it has not got any event with an offset since
        if not isinstance(offset, str) or OFFSET.fullmatch(offset) is None:
            return None
        if identity is None:
            identity = await self.identify(auth)
        if identity is None or self._pids.digest(identity) != pid.digest:
            return None
        if not await self._may_return(namespace, pid, offset.encode()):
            return None
        known = self._log.sessions(namespace).get(pid.sid)
        if (place := first_place(known, pid, offset.encode())) is not None:
            changes.read(await self._log.changes(namespace, place))
        if not await self._free(namespace, pid.sid):
            return None
        if self._sockets.basic_pre_connect(eio_sid, namespace, pid.sid) is None:
            return None
        self.held[namespace, pid.sid] = Held(eio_sid, auth["pid"], offset.encode(), changes)
        return pid.sid

    async def _may_return(self, namespace: str, pid: Pid, offset: bytes) -> bool:
        if not await self._log.holds(namespace, offset):
            return False
        now_ms = int(time.time() * 1000)
        sessions = self._log.sessions(namespace)
        for node, told in await self._log.told(namespace, pid.sid, offset):
            sessions.apply(node, pid.sid, told, found=True)
        if not sessions.knows(pid.sid, pid.node, pid.start, now_ms):
            await self._log.learn(namespace, pid)
            if not sessions.knows(pid.sid, pid.node, pid.start, now_ms):
                return False
        return not sessions.is_over(pid.sid, pid.node, now_ms)

    async def _free(self, namespace: str, sid: str) -> bool:
        """End the socket that still has this sid: its client is here, on another connection."""
        end = asyncio.get_running_loop().time() + OLD_SOCKET_BOUND_S
        while (old := self._sockets.eio_sid_from_sid(sid, namespace)) is not None:
            self._sockets.cut(old)
            await asyncio.sleep(0.001)
            if asyncio.get_running_loop().time() > end:
                return False
        return True

    def connected(
        self, namespace: str, sid: str, *, aware: bool, identity: str | None = None
    ) -> dict[str, str]:
        """The connect handler has agreed: what the CONNECT packet says of recovery; it must be sent at once.

        ``aware``: the client can be sent a private id and offsets.
        """
        held = self.held.get((namespace, sid))
        if held is None and self._log.sessions(namespace).since is None:
            aware = False  # Redis is away since the start: no private id of now could be recovered
        if aware or held is not None:
            self.unaware.discard(sid)
        if held is not None:
            self._restore(namespace, sid, held.changes)
            self.journal.moved_here(namespace, sid)
            self.on_return(True)
            for callback in self.on_recovered:
                callback(namespace, sid)
            return {"pid": held.pid}
        if not aware:
            return {}
        start = self._log.position(namespace)
        who = identity if identity is not None else self.identity_of(namespace, sid)
        return {"pid": self._pids.issue(sid, namespace, self._node, start, who)}

    def _restore(self, namespace: str, sid: str, changes: Changes) -> None:
        self.changes.remove(changes)
        known = self._log.sessions(namespace).get(sid)
        told = known.told if known is not None else Told()
        mine = self._sockets.rooms_of(sid, namespace)
        rooms = changes.apply(sid, mine if told.rooms is None else frozenset(told.rooms), known)
        for room in mine - rooms:
            self._sockets.leave(sid, room, namespace)
        if rooms - mine or told.state is not None:
            self.restore(namespace, sid, rooms - mine, told.state)

    def _join_all(self, namespace: str, sid: str, rooms: Collection[str], state: Any) -> None:
        for room in rooms:
            self._sockets.join(sid, room, namespace)

    def _describe(self, namespace: str, sid: str) -> tuple[list[str], Any]:
        return sorted(self._sockets.rooms_of(sid, namespace)), self.state_of(namespace, sid)

    def position(self, namespace: str) -> bytes:
        """The last entry that was delivered here."""
        return self._log.position(namespace)

    # -- leaving ---------------------------------------------------------------------------------------
    def gone(self, namespace: str, sid: str, *, ended: bool) -> None:
        """A connected socket goes; its rooms are still known. ``ended``: by its own or the server's wish."""
        if sid not in self.unaware:
            self.journal.gone(namespace, sid, ended=ended)

    def expect(self, namespace: str, sid: str) -> None:
        """A socket that waits for acks lost its transport: :meth:`keep` them for the window."""
        key = (namespace, sid)
        if sid not in self.unaware and key not in self._kept:
            self._kept[key] = []
            window_s = self._log.sessions(namespace).window_s
            asyncio.get_running_loop().call_later(window_s, self._kept.pop, key, None)

    def keep(self, namespace: str, sid: str, packet: Encoded) -> None:
        """An ack for a socket that is away: it is sent if it comes back here."""
        kept = self._kept.get((namespace, sid))
        if kept is not None and len(kept) < KEPT_MAX:
            kept.append(packet)

    def forget(self, namespace: str, sid: str) -> None:
        """Nothing of a socket is here any more, or it was refused by the connect handler."""
        held = self.held.pop((namespace, sid), None)
        if held is not None and held.changes in self.changes:
            self.changes.remove(held.changes)
        self.unaware.discard(sid)

    def told(self, namespace: str, marker: Marker) -> None:
        """Another node has told of sockets; one that is here, too, is the older one of the two."""
        for sid in self._log.sessions(namespace).read(marker):
            eio_sid = self._sockets.eio_sid_from_sid(sid, namespace)
            if eio_sid is not None:
                self.journal.forget(namespace, sid)
                self.unaware.add(sid)  # its end is nothing to tell of
                self._sockets.cut(eio_sid)

    def stop(self) -> None:
        """Tell the other nodes what they were not told yet."""
        self.journal.stop()
        self._log.stop()

    def is_held(self, namespace: str, sid: str) -> bool:
        """It was recovered, and its :meth:`replay` is not done."""
        return (namespace, sid) in self.held

    # -- replay ----------------------------------------------------------------------------------------
    async def replay(self, namespace: str, sid: str) -> None:
        """Send what was missed, then what has come meanwhile. Does nothing for a socket that is not held."""
        held = self.held.get((namespace, sid))
        if held is None:
            return
        for packet in self._kept.pop((namespace, sid), ()):
            self._sockets.push((held.eio_sid,), packet)
        try:
            await self._replay(namespace, sid, held)
        except BackplaneError:
            # What it has got so far moved its offset: it comes again and goes on there.
            self._sockets.cut(held.eio_sid)
        finally:
            if self.held.get((namespace, sid)) is held:
                del self.held[namespace, sid]

    async def _replay(self, namespace: str, sid: str, held: Held) -> None:
        until = self._log.position(namespace)
        mine = {sid, *self._sockets.rooms_of(sid, namespace)}
        if parse_id(held.offset) < parse_id(until):
            async for part in self._log.missed(namespace, mine, held.offset, until):
                for entry_id, body in part:
                    packet = self._sockets.event_packet(namespace, body, entry_id)
                    if packet is not None:
                        self._sockets.push((held.eio_sid,), packet)
                    if self._sockets.is_behind(held.eio_sid) is not False:
                        held.full = held.full or not await self._has_read(held.eio_sid)
                    if held.full:
                        self._sockets.cut(held.eio_sid)
                        return
        floor = self._floor(held, until)
        end = asyncio.get_running_loop().time() + DRAIN_BOUND_S
        while parse_id(self._log.position(namespace)) < floor and not held.full:
            await asyncio.sleep(LOOK_S)
            if asyncio.get_running_loop().time() > end:
                held.full = True
        if held.full:
            self._sockets.cut(held.eio_sid)
            return
        for waiting_id, packet in held.waiting:
            if waiting_id is None or parse_id(waiting_id) > floor:
                self._sockets.push((held.eio_sid,), packet)

    def _floor(self, held: Held, until: bytes) -> tuple[int, int]:
        """What waits and is not newer than this is not sent: the replay had it.

        This node may be behind the one that served the client: what it got from there comes here, too, later.
        """
        return max(parse_id(until), parse_id(held.offset))

    async def _has_read(self, eio_sid: str) -> bool:
        """False: it is gone, or does not read within the bound."""
        end = asyncio.get_running_loop().time() + DRAIN_BOUND_S
        while (behind := self._sockets.is_behind(eio_sid)) is True:
            if asyncio.get_running_loop().time() > end:
                return False
            await asyncio.sleep(LOOK_S)
        return behind is False


def knows_offsets(environ: dict[str, Any], auth: Any) -> bool:
    """Whether a client can be given a private id, and offsets behind the arguments of events.

    python-socketio's client hands an offset to the handler as one argument more, so it gets none, unless what it
    sends with CONNECT has a key ``pid`` or ``offset``, be it null. All others are taken to ignore further
    arguments, as JavaScript does.
    """
    if isinstance(auth, dict) and ("pid" in auth or "offset" in auth):
        return True
    return _PYTHON_ENGINEIO.search(environ.get("QUERY_STRING", "")) is None


async def _nobody(auth: Any) -> str | None:
    return None
