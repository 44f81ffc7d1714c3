"""Reads the cluster stream: every entry once, in order, over reconnects, restarts and poison.

The start is resolved once, to the end of the stream at that time; from then on the position only follows what was
read. It is moved before an entry is handled, so no entry is read twice, whatever it does.

After each reconnect the stream's last id is compared with our position. When the stream is behind us, Redis came
back with less than it had: if ids that we have read are still there, its tail was lost and we go on at its end;
if not, it is a new stream and is read from its beginning.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable

from moorage.cluster.wire import Malformed, Message, decode_entry
from moorage.cluster.writer import last_id, parse_id
from moorage.errors import BackplaneError, BackplaneReply, BackplaneUnknown
from moorage.storage.backplane import Backplane
from moorage.ticks import sleep_to_tick

logger = logging.getLogger(__name__)

YIELD_EVERY = 100
"""Entries handled between two turns of the loop: about a millisecond."""
LAG_INTERVAL_S = 5.0
"""How often the position is compared with the stream's head (PROTOCOL, "Metrics")."""
WATCH_S = 0.2
PLACE_S = 1.0
"""How long clients wait for the start to be resolved; a blocking read that is under way takes half of it at most."""
ANCHORS = 128
"""Ids kept, at most one a second, to recognise a stream that lost its tail: two minutes."""
ERROR_PAUSE_S = 1.0
"""Pause after an error reply to a read (WRONGTYPE, NOPERM): nothing gets better by asking at once."""
COMPLAIN_INTERVAL_S = 60.0

Deliver = Callable[[bytes, Message], None]


class _Place:
    """Position in one stream."""

    __slots__ = ("anchors", "id", "marked", "origin")

    def __init__(self, start: bytes) -> None:
        self.id = self.origin = start
        self.marked = -math.inf
        self.anchors: deque[bytes] = deque([start], maxlen=ANCHORS)

    def advance(self, entry_id: bytes, now: float) -> None:
        self.id = entry_id
        if now - self.marked >= 1.0:
            self.marked = now
            self.anchors.append(entry_id)


class StreamReader:
    """Calls ``deliver(entry id, message)`` for each entry that is not from ``uid``, or is tagged as to come back.

    Counts: ``poisoned``, entries that cannot be decoded or that ``deliver`` raised for. ``lag_ms``: how far [ms]
    the position is behind the stream's head, NaN when unknown.
    """

    def __init__(
        self, backplane: Backplane, streams: list[str], *, uid: str, count: int, deliver: Deliver
    ) -> None:
        self.poisoned = 0
        self.lag_ms = math.nan
        self.placed = asyncio.Event()
        """Set when the start is resolved: entries appended from now on are delivered."""
        self._backplane, self._uid, self._deliver = backplane, uid, deliver
        self._next_place = asyncio.Event()
        self._wanted: dict[str, float] = {}
        self._names = list(streams)
        self._places: dict[str, _Place] = {}
        self._count = self._count_max = count
        # A read that finds nothing ends well inside the bound, so silence is noticed in less than the bound.
        self._block_ms = max(1, backplane.timeout_ms // 4)
        self._bound_ms = 3 * self._block_ms
        self._silent_s = 0.0
        backplane.on_up.append(self._forgive)
        self._recheck = False
        self._complained = -math.inf
        self._tasks: list[asyncio.Task[None]] = []

    # -- life ------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Begin to read."""
        if not self._tasks:
            loop = asyncio.get_running_loop()
            self._link = self._backplane.open_link("stream-reader", timeout_ms=self._bound_ms)
            self._tasks = [
                loop.create_task(self._run(), name="stream-reader"),
                loop.create_task(self._watch(), name="stream-reader-watch"),
            ]

    async def stop(self) -> None:
        """Stop reading, at once."""
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)
            self._tasks = []
            await self._link.stop()

    def add(self, stream: str) -> None:
        """Read one more stream, from its end. Known ones are ignored."""
        if stream not in self._names:
            self._names.append(stream)
            self._recheck = True

    def position(self, stream: str) -> bytes:
        """The entry that was read last; ``0-0``: none, or not placed yet."""
        place = self._places.get(stream)
        return place.id if place is not None else b"0-0"

    def origin(self, stream: str) -> bytes | None:
        """The last entry before those that are read; None: not placed yet."""
        place = self._places.get(stream)
        return place.origin if place is not None else None

    async def placed_in(self, stream: str) -> bool:
        """Read ``stream``, and wait for its start to be resolved.

        False: not within :data:`PLACE_S` of the first time that this was asked for the stream.
        """
        if stream in self._places:
            return True
        self.add(stream)
        until = self._wanted.setdefault(stream, asyncio.get_running_loop().time() + PLACE_S)
        while stream not in self._places:
            try:
                async with asyncio.timeout_at(until):
                    await self._next_place.wait()
            except TimeoutError:
                return False
        return True

    @property
    def deaf(self) -> bool:
        """No read was completed for longer than its bound, although Redis answers others."""
        return self._silent_s * 1000 > self._bound_ms + self._block_ms and self._backplane.available

    # -- reading ---------------------------------------------------------------------------------------
    async def _run(self) -> None:
        while True:
            if not await self._link.wait_up(WATCH_S):
                continue
            try:
                self._recheck = False
                for name in self._names:
                    await self._place(name)
                self.placed.set()
                while self._link.up and not self._recheck:
                    await self._read()
            except BackplaneUnknown:
                # Perhaps the answer was too much for the bound: ask for less, down to one entry.
                self._count = max(1, self._count // 2)
            except BackplaneReply as error:
                self._complain(f"the cluster stream cannot be read: {error}")
                await asyncio.sleep(ERROR_PAUSE_S)
            except BackplaneError:
                pass  # not connected; waited for above
            await asyncio.sleep(0)

    async def _place(self, name: str) -> None:
        command = self._link.command
        end = await last_id(command, name)
        place = self._places.get(name)
        if place is None:
            self._places[name] = _Place(end)
            self._next_place.set()
            self._next_place = asyncio.Event()
        elif parse_id(end) < parse_id(place.id):
            known = next((i for i in reversed(place.anchors) if parse_id(i) <= parse_id(end)), None)
            same = known is not None and bool(await command("XRANGE", name, known, known))
            logger.warning("stream %s %s", name, "lost its tail" if same else "is another one now")
            self._places[name] = _Place(end if same else b"0-0")

    async def _read(self) -> None:
        names = list(self._places)
        reply = await self._link.command(
            "XREAD", "COUNT", self._count, "BLOCK", self._block_ms, "STREAMS",
            *names, *(self._places[name].id for name in names),
        )  # fmt: skip
        self._silent_s = 0.0
        if self._count < self._count_max:
            self._count = min(self._count * 2, self._count_max)
        loop = asyncio.get_running_loop()
        for stream, entries in reply or ():
            place = self._places[stream.decode()]
            for number, (entry_id, fields) in enumerate(entries, 1):
                place.advance(entry_id, loop.time())
                self._handle(entry_id, fields)
                if number % YIELD_EVERY == 0:
                    await asyncio.sleep(0)

    def _handle(self, entry_id: bytes, fields: list[bytes] | None) -> None:
        try:
            message = decode_entry(fields)
            if isinstance(message, Malformed):
                self.poison(entry_id, message)
            elif message.uid != self._uid or message.tag:
                self._deliver(entry_id, message)
        except Exception as error:
            self.poison(entry_id, Malformed(type(error).__name__), error)

    def poison(self, entry_id: bytes, why: Malformed, error: Exception | None = None) -> None:
        """Count an entry that is skipped."""
        self.poisoned += 1
        self._complain(f"entry {entry_id.decode()} is skipped ({self.poisoned} so far): {why.reason}", error)

    def _complain(self, text: str, error: Exception | None = None) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._complained >= COMPLAIN_INTERVAL_S:
            self._complained = now
            logger.warning("%s", text, exc_info=error)

    # -- watching --------------------------------------------------------------------------------------
    def _forgive(self) -> None:
        self._silent_s = 0.0

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        next_lag = loop.time()
        while True:
            before = loop.time()
            await sleep_to_tick(WATCH_S)
            # A process that was stopped must not blame its reader; in an outage nobody hears anything.
            self._silent_s += min(loop.time() - before, 2 * WATCH_S)
            if not self._backplane.available:
                self._forgive()
            if loop.time() >= next_lag:
                next_lag = loop.time() + LAG_INTERVAL_S
                self.lag_ms = await self._lag()

    async def _lag(self) -> float:
        worst = math.nan
        for name, place in self._places.items():
            try:
                head = parse_id(await last_id(self._backplane.command, name))
            except BackplaneError:
                return math.nan
            here = parse_id(place.id)
            if head < here:
                self._recheck = True
            worst = max(head[0] - here[0], 0 if math.isnan(worst) else worst)
        return worst
