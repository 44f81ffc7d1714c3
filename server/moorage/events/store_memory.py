"""Logs of one process, in memory: what a server without Redis uses. Same behaviour as the Redis one."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from moorage.events.frames import START, Event, EventId, Head
from moorage.events.store import PAGE_MAX_BYTES, Entry, SessionDeleted, Span, Stored


class _Log:
    __slots__ = ("entries", "epoch", "expires", "last", "seq")

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(6)
        self.seq = 0
        self.last = START
        self.entries: deque[tuple[Entry, int]] = deque()
        self.expires = 0.0


class MemoryStore:
    """See :class:`~moorage.events.store.Store`. Nothing here waits; ``now`` gives epoch seconds."""

    available = True

    def __init__(self, maxlen: int, ttl_ms: int, now: Callable[[], float] = time.time) -> None:
        self.on_up: Callable[[], None] = lambda: None
        self.on_dropped: Callable[[str], None] = lambda reason: None
        self._maxlen = maxlen
        self._ttl_s = ttl_ms / 1000
        self._now = now
        self._logs: dict[str, _Log] = {}
        self._expiring: OrderedDict[str, None] = OrderedDict()  # sessions with entries, first to expire first
        self._deleted: OrderedDict[str, float] = OrderedDict()  # until when

    def next_number(self) -> int:
        return 0  # nothing here is ever unknown

    async def append(
        self, session_id: str, event: Event, number: int, *, repeat_after: EventId | None = None
    ) -> Stored:
        log = self._get(session_id)
        log.seq += 1
        ms = int(self._now() * 1000)
        log.last = EventId(ms, 0) if ms > log.last.ms else EventId(log.last.ms, log.last.n + 1)
        log.entries.append((Entry(log.last, log.seq, event.json), len(event.data)))
        if len(log.entries) > self._maxlen:
            log.entries.popleft()
        log.expires = self._now() + self._ttl_s
        self._expiring[session_id] = None
        self._expiring.move_to_end(session_id)
        return Stored(log.epoch, log.last, log.seq)

    async def read(self, session_id: str, after: EventId | None, count: int) -> Span:
        log = self._get(session_id)
        if count == 0:
            return Span(Head(str(log.last), log.seq, log.epoch), [], False)
        oldest = log.entries[0][0] if log.entries else None
        head = Head(
            str(log.last),
            log.seq,
            log.epoch,
            str(oldest.id) if oldest else None,
            oldest.seq if oldest else None,
        )
        entries: list[Entry] = []
        size = 0
        if after is not None:
            for entry, length in log.entries:
                if entry.id <= after:
                    continue
                size += length
                if len(entries) == count or (entries and size > PAGE_MAX_BYTES):
                    break
                entries.append(entry)
        return Span(head, entries, bool(entries) and entries[-1].id < log.last)

    async def delete(self, session_id: str) -> None:
        self._logs.pop(session_id, None)
        self._expiring.pop(session_id, None)
        self._deleted[session_id] = self._now() + self._ttl_s

    def tell(self, session_id: str, event: bytes) -> None:
        """There is nobody else."""

    def _get(self, session_id: str) -> _Log:
        now = self._now()
        while self._deleted and next(iter(self._deleted.values())) <= now:
            self._deleted.popitem(last=False)
        if session_id in self._deleted:
            raise SessionDeleted
        while self._expiring and self._logs[oldest := next(iter(self._expiring))].expires <= now:
            self._logs[oldest].entries.clear()
            del self._expiring[oldest]
        log = self._logs.get(session_id)
        if log is None:
            log = self._logs[session_id] = _Log()
        return log
