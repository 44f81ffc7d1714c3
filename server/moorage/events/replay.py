"""Bringing one reader from where it stopped to where the others are: in pages, each read once for all who need it.

A reader is registered before anything is read, so what is appended from then on reaches it live; the replay has to
come at least to where the log stood at that moment. A page that was asked for by somebody earlier may be older than
that, so the end of a page is the end of the replay only if it lies at or behind it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moorage.errors import BackplaneError
from moorage.events.frames import EventId, Frame, Head, Resume
from moorage.events.gaps import find_gap
from moorage.events.live import Group, Live, frame_of
from moorage.events.readers.base import NO_SESSION, TRY_AGAIN, Reader
from moorage.events.store import READ_COUNT, SessionDeleted, Span

START_BOUND_S = 10.0
"""[s] A reader waits this long for the log to be reachable; then it is asked to come again."""

LOOKS_MAX = 10
"""Looks for an event that is known to be there."""

RETRY_S = 0.02
"""[s] Before a log that could not be read is tried again."""


GATHER_S = 0.01
"""[s] The first page of a replay waits this long for others who need the same: readers that were cut off together
come back together. It is little beside the 800 ms after which they try, and live events go out meanwhile."""

READS_MAX = 64
"""Reads under way at the same time. Each may bring a page of 1 MiB, so this bounds what a thousand readers take that
come back at once."""


class Reads:
    """Reads under way, each shared by all who want the same at that time."""

    def __init__(self, read: Callable[[str, EventId | None, int], Awaitable[Span]]) -> None:
        self._read = read
        self._running: dict[tuple[str, EventId | None, int], asyncio.Task[Span]] = {}
        self._slots = asyncio.Semaphore(READS_MAX)

    async def __call__(self, session_id: str, after: EventId | None, count: int, gather_s: float = 0) -> Span:
        """As :meth:`Store.read`; what comes may have been read a moment before it was asked for. ``gather_s``: wait
        so long before reading, if nobody does already."""
        key = (session_id, after, count)
        task = self._running.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._run(key, gather_s))
            self._running[key] = task
        return await asyncio.shield(task)

    async def _run(self, key: tuple[str, EventId | None, int], gather_s: float) -> Span:
        try:
            await asyncio.sleep(gather_s)
            async with self._slots:
                return await self._read(*key)
        finally:
            del self._running[key]


class Replay:
    """``reachable()`` returns when reading is worth trying."""

    def __init__(self, live: Live, reads: Reads, reachable: Callable[[], Awaitable[None]]) -> None:
        self._live = live
        self._reads = reads
        self._reachable = reachable

    async def serve(self, reader: Reader, resume: Resume | None) -> None:
        """Register, ``ws_ready``, replay; returns when the reader is live, or ended."""
        group = self._live.join(reader)
        try:
            async with asyncio.timeout(START_BOUND_S):
                await reader.begun.wait()
        except TimeoutError:
            reader.end(TRY_AGAIN)
        if reader.ended:
            return
        if resume is None or reader.resets:
            reader.go_live()
            return
        try:
            await self._replay(reader, group, resume)
        except SessionDeleted:
            reader.end(NO_SESSION)
        except TimeoutError:
            reader.end(TRY_AGAIN)

    async def _replay(self, reader: Reader, group: Group, resume: Resume) -> None:
        """Raises SessionDeleted, TimeoutError."""
        joined = group.order.seq
        at: Resume | None = resume
        looks = 0
        while at is not None:
            span = await self._page(reader.session_id, EventId.parse(at.after), first=at is resume)
            if reader.resets or reader.ended:
                return
            if looks < LOOKS_MAX and _is_old(at, span.head, group):
                looks += 1
            else:
                at = self._send(reader, group, at, span, joined)
            if at is not None and (not await reader.room() or reader.resets):
                return

    def _send(self, reader: Reader, group: Group, at: Resume, span: Span, joined: int) -> Resume | None:
        """A page, or the gap. Returns where to go on; None: the replay is over."""
        gap = find_gap(at, span.head, span.entries[0].seq if span.entries else None)
        if gap is not None:
            reader.send(Frame.control(gap.frame()))
            reader.go_live()
            return None
        for entry in span.entries:
            reader.send(frame_of(entry))
        end = _end_of(span)
        seq = end.last_seq or 0
        if not span.more and seq >= (group.order.seq if reader.waits else joined):
            reader.send(Frame.control({"type": "replay_done", "lastEventId": end.after}))
            reader.go_live(seq)
            return None
        return end

    async def _page(self, session_id: str, after: EventId | None, *, first: bool) -> Span:
        """Raises TimeoutError when the log stays out of reach."""
        async with asyncio.timeout(START_BOUND_S):
            while True:
                try:
                    return await self._reads(session_id, after, READ_COUNT, GATHER_S if first else 0)
                except BackplaneError:
                    await asyncio.sleep(RETRY_S)
                    await self._reachable()


def _is_old(at: Resume, head: Head, group: Group) -> bool:
    """The page was read before the last event of the reader was appended: that this id is beyond it says nothing."""
    after = EventId.parse(at.after)
    return after is not None and head.last < after <= group.order.id and head.epoch == group.order.epoch


def _end_of(span: Span) -> Resume:
    if span.more:
        last = span.entries[-1]
        return Resume(str(last.id), last.seq, span.head.epoch)
    return Resume(span.head.last_id, span.head.last_seq, span.head.epoch)
