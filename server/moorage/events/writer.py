"""Appending through whatever happens to Redis: nothing is appended twice, what is not appended is counted and told.

An append normally is one command and nothing else. When its reply is lost it may or may not be in the log; it then
waits in the *lane* of its session, is repeated by its number until Redis says which, and everything after it waits
behind it. What certainly is not in the log goes out without an id and makes the *hole* of its session larger; the
hole is closed by an ``unlogged`` event, ahead of anything else.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from moorage.bugs import log_bug
from moorage.errors import BackplaneReply, BackplaneUnavailable, BackplaneUnknown
from moorage.events.breaker import PROBE_AFTER_S, Breaker
from moorage.events.frames import Event, EventId, make_event
from moorage.events.store import SessionDeleted, Store, Stored

log = logging.getLogger(__name__)

GRACE_S = 1.0
"""[s] From the beginning of an outage: appends wait for Redis, so that a lost connection costs a moment and no event
its id. A connection is renewed within a quarter of that. After it, appends fail at once."""

LANES_MAX_BYTES = 67_108_864
"""What waits in all lanes together: a thousand of the largest events, or some 100 000 of the usual size. What is beyond
goes out without an id, although it may be in the log."""

ITEM_BYTES = 500
"""What an event that waits takes besides itself."""

HOLES_MAX = 100_000
"""Sessions with a hole that is still to be told."""

REFUSED_BY_WRITES = ("OOM", "MISCONF", "NOREPLICAS", "WRONGTYPE", "NOPERM")
"""Errors of a repeated append by which it is given up as not appended. The first three come from the script's first
write, to which it gets only if the event is not in the log; the others do not go away. All else, as BUSY, says
nothing of it."""

RETRY_S = 0.02
"""[s] Between two attempts of a lane."""


class Hole(NamedTuple):
    """Events without an id; from and to are ``at`` of the first and the last [epoch ms]."""

    events: int
    start: int
    end: int

    def and_then(self, later: Hole) -> Hole:
        return Hole(self.events + later.events, self.start, later.end)


@dataclass(slots=True, eq=False)
class _Waiting:
    """``number``: it was sent under it and may be in the log. ``hole``: this is the ``unlogged`` of that hole."""

    event: Event
    done: asyncio.Future[Stored | None]
    number: int | None = None
    after: EventId | None = None
    hole: Hole | None = None

    @property
    def size(self) -> int:
        return ITEM_BYTES + len(self.event.json)


class Writer:
    """``delivered(session, stored, event)``: it is in the log. ``unlogged(session, event)``: it is not.
    ``reachable()`` returns when Redis can be reached. ``count(result)``: ``ok``, ``unlogged``, ``deleted``."""

    def __init__(
        self,
        store: Store,
        delivered: Callable[[str, Stored, Event], None],
        unlogged: Callable[[str, Event], None],
        reachable: Callable[[], Awaitable[None]],
        count: Callable[[str], None],
    ) -> None:
        self.breaker = Breaker()
        self.probe_after_s = PROBE_AFTER_S
        self._store = store
        self._delivered = delivered
        self._tell_unlogged = unlogged
        self._reachable = reachable
        self._count = count
        self._lanes: dict[str, deque[_Waiting]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._holes: dict[str, Hole] = {}
        self._outage_since: float | None = None
        self._probe_timer: asyncio.TimerHandle | None = None

    async def write(self, session_id: str, event: Event) -> Stored | None:
        """None: it has gone out without an id, or what became of it is not known yet. Never raises for Redis."""
        if not self.breaker.closed:
            self._leave_out(session_id, event)
            return None
        number = None
        if session_id not in self._lanes and session_id not in self._holes and self._store.available:
            number = self._store.next_number()
            try:
                return self._done(session_id, event, await self._store.append(session_id, event, number))
            except SessionDeleted:
                self._deleted()
                return None
            except BackplaneUnknown:
                pass
            except BackplaneUnavailable:
                number = None
            except BackplaneReply:  # Redis refuses, and will go on to
                self._fail(session_id, event)
                return None
        return await self._wait(session_id, event, number)

    async def stop(self) -> None:
        """End what waits; it is not in the log, or nobody knows."""
        if self._probe_timer is not None:
            self._probe_timer.cancel()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)

    # -- outcomes ------------------------------------------------------------------------------------------
    def _done(self, session_id: str, event: Event, stored: Stored) -> Stored | None:
        self._answered()
        self._count("ok")
        if stored.id is None:
            return None
        self._delivered(session_id, stored, event)
        return stored

    def _deleted(self) -> None:
        """The session is no more: nobody is to be told anything, but Redis is there."""
        self._answered()
        self._count("deleted")

    def _answered(self) -> None:
        self._outage_since = None
        if self.breaker.success():
            log.info("the event log is back, sessions with holes: %d", len(self._holes))
            self._cancel_probe()
            for other in list(self._holes):
                self._enqueue(other, None)

    def _fail(self, session_id: str, event: Event) -> None:
        """It is certainly not in the log, though it was tried."""
        self._failed()
        self._leave_out(session_id, event)

    def _leave_out(self, session_id: str, event: Event) -> None:
        self._count("unlogged")
        self._dig(session_id, Hole(1, event.at, event.at))
        self._tell_unlogged(session_id, event)

    def _failed(self) -> None:
        if self._outage_since is None:
            self._outage_since = time.monotonic()
        if self.breaker.failure():
            log.warning("the event log is out of reach: events go out without an id")
            self._cancel_probe()
            self._probe_timer = asyncio.get_running_loop().call_later(self.probe_after_s, self.probe)

    def _dig(self, session_id: str, hole: Hole) -> None:
        known = self._holes.get(session_id)
        if known is not None:
            self._holes[session_id] = known.and_then(hole)
        elif len(self._holes) < HOLES_MAX:
            self._holes[session_id] = hole
        else:
            log.error("too many sessions with unlogged events: one will not be told")

    # -- lanes ---------------------------------------------------------------------------------------------
    async def _wait(self, session_id: str, event: Event, number: int | None) -> Stored | None:
        now = time.monotonic()
        if self._outage_since is None:
            self._outage_since = now
        bound = self._outage_since + GRACE_S - now
        if self._waiting >= LANES_MAX_BYTES or (
            bound <= 0 and number is None and session_id not in self._lanes
        ):
            self._fail(session_id, event)
            return None
        item = self._enqueue(session_id, event, number)
        try:
            async with asyncio.timeout(max(bound, RETRY_S)):
                return await asyncio.shield(item.done)
        except TimeoutError:
            if item.number is None and self._withdraw(session_id, item):
                self._fail(session_id, event)
                return None
            self._failed()
            return None

    def _enqueue(self, session_id: str, event: Event | None, number: int | None = None) -> _Waiting:
        """Behind what waits already, and behind the hole that is still to be told."""
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(session_id)
        if lane is None:
            lane = self._lanes[session_id] = deque()
            worker = loop.create_task(self._work(session_id, lane))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        added = []
        hole = self._holes.pop(session_id, None) if number is None else None
        if hole is not None:
            data = {"count": hole.events, "from": hole.start, "to": hole.end}
            told = make_event("unlogged", data, None, int(time.time() * 1000), 1024)
            added.append(_Waiting(told, loop.create_future(), hole=hole))
        if event is not None:
            added.append(_Waiting(event, loop.create_future(), number))
        # What was sent already goes before what was not, in the order in which it was: a number is only known as
        # long as no larger one of this process has been appended.
        later = (n for n, item in enumerate(lane) if item.number is None or item.number > (number or 0))
        at = len(lane) if number is None else next(later, len(lane))
        for item in reversed(added):
            lane.insert(at, item)
        self._waiting += sum(item.size for item in added)
        return added[-1] if added else lane[-1]

    def _withdraw(self, session_id: str, item: _Waiting) -> bool:
        lane = self._lanes.get(session_id)
        if lane is None or item not in lane:
            return False
        lane.remove(item)
        self._waiting -= item.size
        return True

    async def _work(self, session_id: str, lane: deque[_Waiting]) -> None:
        last: EventId | None = None
        try:
            while lane:
                await self._reachable()
                if lane and (stored := await self._attempt(session_id, lane, last)) is not None:
                    last = stored.id or last
        except Exception as error:
            log_bug(log, "appending what waited", error)
            self._failed()
        finally:
            del self._lanes[session_id]
            while lane:
                self._finish(lane, lane[0], None)

    async def _attempt(self, session_id: str, lane: deque[_Waiting], last: EventId | None) -> Stored | None:
        """Try the first of the lane once."""
        item = lane[0]
        repeats = item.number is not None
        if item.number is None:
            item.number = self._store.next_number()
        try:
            stored = await self._store.append(
                session_id, item.event, item.number, repeat_after=(last or EventId(0, 0)) if repeats else None
            )
        except SessionDeleted:
            self._deleted()
            self._finish(lane, item, None)
            return None
        except BackplaneUnknown:
            await asyncio.sleep(RETRY_S)
            return None
        except BackplaneUnavailable:
            item.number = item.number if repeats else None
            await asyncio.sleep(RETRY_S)
            return None
        except BackplaneReply as error:
            if repeats and not str(error).startswith(REFUSED_BY_WRITES):
                await asyncio.sleep(RETRY_S)
            else:
                self._refused(session_id, lane, item)
            return None
        self._finish(lane, item, self._done(session_id, item.event, stored))
        return stored

    def _refused(self, session_id: str, lane: deque[_Waiting], item: _Waiting) -> None:
        if item.hole is None:
            self._fail(session_id, item.event)
        else:
            later = self._holes.pop(session_id, None)
            self._holes[session_id] = item.hole if later is None else item.hole.and_then(later)
            self._failed()
        self._finish(lane, item, None)
        while item.hole is not None and lane:
            # The hole is told ahead of what comes after it, or they are part of it.
            self._leave_out(session_id, lane[0].event)
            self._finish(lane, lane[0], None)

    def _finish(self, lane: deque[_Waiting], item: _Waiting, stored: Stored | None) -> None:
        lane.remove(item)
        self._waiting -= item.size
        if not item.done.done():
            item.done.set_result(stored)

    # -- probes --------------------------------------------------------------------------------------------
    def probe(self) -> None:
        """Try whether the log is back: by an event that waits, else by the ``unlogged`` of a session."""
        if self.breaker.closed:
            return
        self._cancel_probe()
        if not self._store.available:
            self._probe_timer = asyncio.get_running_loop().call_later(self.probe_after_s, self.probe)
        elif self.breaker.probe() and not any(self._lanes.values()):  # a lane that was given up may be empty
            session_id = next(iter(self._holes), None)
            if session_id is None:
                self.breaker.success()
            else:
                self._enqueue(session_id, None)

    def _cancel_probe(self) -> None:
        if self._probe_timer is not None:
            self._probe_timer.cancel()
            self._probe_timer = None
