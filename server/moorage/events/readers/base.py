"""What every reader is: one connection's view of one session's log, with pings and a bound on what is unsent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from moorage.events.frames import PING, Frame
from moorage.events.gaps import Gap
from moorage.settings import Settings

OK, GOING_AWAY, SERVICE_RESTART, TRY_AGAIN = 1000, 1001, 1012, 1013
UNAUTHORIZED, NO_SESSION, SLOW = 4401, 4404, 4408
SILENT = 1011
"""Close codes (PROTOCOL; RFC 6455 and its registry). A client that is silent may be gone: it is told as a failure."""

TICKS = 3
"""Looks at a connection per ping."""

SILENCE_PINGS = 3
"""So many pings without a word are a dead connection: 45 s with the default (PROTOCOL)."""

QUEUED_MAX_S = 30.0
"""[s] Older than this unsent: a slow reader (PROTOCOL)."""

KINDS = ("websocket", "sse", "socketio")
"""The ways to read."""

ROOM_BYTES = 262_144
"""[bytes] A replay goes on when less than this is unsent."""


@dataclass(frozen=True, slots=True)
class Limits:
    """``ping_s``: between two pings. ``max_buffer``: [bytes] unsent before a reader is slow; ``queued_max_s``: its
    age."""

    ping_s: float = 15.0
    max_buffer: int = 4_194_304
    queued_max_s: float = QUEUED_MAX_S

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """As configured."""
        return cls(settings.event_ping_ms / 1000, settings.reader_max_buffer_bytes)


class Reader:
    """Base of the three. Used in one running event loop; a reader is its own identity.

    A subclass says how a frame is written (:meth:`write`), how much is unsent (:meth:`unsent`) and how the
    connection ends (:meth:`close`). ``waits``: live events come only after the replay. ``answers``: the client is
    expected to say something at every ping. ``connects``: the connection is for this reader alone. ``kind``: one of
    :data:`KINDS`.
    """

    kind = ""
    waits = False
    answers = False
    connects = True

    def __init__(self, session_id: str, limits: Limits) -> None:
        self.session_id = session_id
        self.limits = limits
        self.begun = asyncio.Event()
        self.ended = False
        self.cut_off: int | None = None
        """[bytes] What was unsent when it was ended for being slow."""
        self.resets = 0
        """How often a gap was announced outside of a replay; a replay under way ends with it."""
        self.on_end: list[Callable[[Reader], None]] = []
        self._epoch = ""
        self._holding = self.waits
        self._replayed = 0
        self._waiting: deque[Frame] = deque()
        self._written = 0
        self._marks: deque[tuple[float, int]] = deque()  # (when, written until then)
        self._ticks = 0
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._timer = self._loop.call_later(limits.ping_s / TICKS, self._tick)

    # -- of the carrier --------------------------------------------------------------------------------------
    def write(self, frame: Frame) -> int:
        """Write or queue; never waits. Returns the bytes. May call :meth:`slow`, not :meth:`end`."""
        raise NotImplementedError

    def unsent(self) -> int:
        """[bytes] not yet given to the network."""
        raise NotImplementedError

    def close(self, code: int) -> None:
        """End the connection, or this reading of it; what is queued may still be sent."""
        raise NotImplementedError

    # -- life ------------------------------------------------------------------------------------------------
    def begin(self, ready: Frame, epoch: str) -> None:
        """``ws_ready``; from now on :meth:`live` is called with what follows it."""
        self._epoch = epoch
        self.send(ready)
        self.begun.set()

    def reset(self, ready: Frame, epoch: str, gap: Gap) -> None:
        """What followed was lost: as if connected anew, with a gap."""
        self.resets += 1
        self.begin(ready, epoch)
        self.send(Frame.control(gap.frame()))
        self.go_live()

    def go_live(self, seq: int = 0) -> None:
        """The replay is over and came to ``seq``."""
        self._holding = False
        self._replayed = seq if self.waits else 0
        while self._waiting:
            self.send(self._waiting.popleft())

    def live(self, frame: Frame) -> None:
        """An event arrived. A reader that waits leaves a logged one to its replay, which will come to it."""
        if not self._holding:
            if frame.seq is None or frame.seq > self._replayed:
                self.send(frame)
        elif frame.id is None and len(self._waiting) < 1000:
            self._waiting.append(frame)

    def send(self, frame: Frame) -> None:
        """To the client, unless it is gone."""
        if not self.ended:
            self._written += self.write(frame)

    def end(self, code: int | None) -> None:
        """Read no more; ``code`` None: the connection is gone already. Once."""
        if self.ended:
            return
        self.ended = True
        if code == SLOW:
            self.cut_off = self.unsent()
        self._timer.cancel()
        self._waiting.clear()
        self.begun.set()
        if code is not None:
            self.close(code)
        for callback in self.on_end:
            callback(self)

    def slow(self) -> None:
        """Too much is unsent. May come inside of a write to many, so the end comes in the next turn of the loop."""
        self._loop.call_soon(self.end, SLOW)

    def heard(self) -> None:
        """The client said something."""
        self._heard = self._loop.time()

    async def room(self) -> bool:
        """Wait until little is unsent. False: the reader has ended. Bounded: one that takes too long is slow."""
        pause = 0.0
        while not self.ended and (pause == 0.0 or self.unsent() > ROOM_BYTES):
            await asyncio.sleep(pause)
            pause = min(0.1, pause + 0.005)
        return not self.ended

    def _tick(self) -> None:
        self._timer = self._loop.call_later(self.limits.ping_s / TICKS, self._tick)
        now = self._loop.time()
        sent = self._written - self.unsent()
        while self._marks and self._marks[0][1] <= sent:
            self._marks.popleft()
        if self._marks and now - self._marks[0][0] > self.limits.queued_max_s:
            self.end(SLOW)
        elif self.answers and now - self._heard > self.limits.ping_s * SILENCE_PINGS:
            self.end(SILENT)
        else:
            self._ticks += 1
            if self._ticks % TICKS == 0:
                self.send(PING)
            self._marks.append((now, self._written))
