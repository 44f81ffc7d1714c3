"""The event log of a process: what others use of :mod:`moorage.events` (docs/event-log.md)."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from moorage.errors import BackplaneError
from moorage.events.breaker import BreakerState
from moorage.events.frames import Event, EventId, Head, Resume, make_event
from moorage.events.gaps import find_gap
from moorage.events.live import Live, frame_of
from moorage.events.reach import Reach
from moorage.events.readers.base import NO_SESSION, SERVICE_RESTART, Reader
from moorage.events.replay import Reads, Replay
from moorage.events.store import SessionDeleted, Store, Stored
from moorage.events.store_memory import MemoryStore
from moorage.events.store_redis import RedisStore
from moorage.events.writer import Writer
from moorage.settings import Settings
from moorage.storage.backplane import Backplane

__all__ = ["Appended", "EventLog", "Head", "Page", "SessionDeleted"]

log = logging.getLogger(__name__)

DELETES_MAX = 10_000
"""Logs whose deletion Redis has not confirmed yet."""


@dataclass(frozen=True, slots=True)
class Appended:
    """``id``: ``<ms>-<n>``. Both None: transient, or the log is down."""

    id: str | None
    seq: int | None


NOT_LOGGED = Appended(None, None)


@dataclass(frozen=True, slots=True)
class Page:
    """``events``: ``event`` frames. ``next``: the ``after`` of the next page, None at the end. ``gap``: the
    ``replay_gap`` frame, and then no events."""

    events: list[dict[str, Any]]
    next: str | None
    gap: dict[str, Any] | None = None


class EventLog:
    """One per process: a replica (``readers=True``) or a worker. Without a backplane: in memory, same behaviour.

    Create, start and use it in one running event loop; start it before the backplane. ``on_append(result)`` counts
    ``ok``, ``transient``, ``unlogged``, ``deleted``; ``on_publish_dropped(reason)`` ``in_flight``, ``unavailable``,
    ``failed``; ``on_slow(kind)`` readers that were cut off, by :data:`~moorage.events.readers.base.KINDS`.
    """

    def __init__(self, backplane: Backplane | None, settings: Settings, *, readers: bool = False) -> None:
        self.settings = settings
        self.on_append: Callable[[str], None] = lambda result: None
        self.on_publish_dropped: Callable[[str], None] = lambda reason: None
        self.on_slow: Callable[[str], None] = lambda kind: None
        self.connections: dict[str, Reader] = {}
        """Readers with a connection of their own, by a key of this process."""
        self.on_connected: Callable[[str], None] = lambda key: None
        self._numbers = 0
        self._backplane = backplane
        self._serves_readers = readers
        own = b""
        if backplane is None:
            self._store: Store = MemoryStore(settings.event_log_maxlen, settings.event_log_ttl_ms)
        else:
            store = RedisStore(
                backplane,
                origin=f"{settings.replica_id}:{secrets.token_hex(4)}",
                channel=settings.event_channel,
                maxlen=settings.event_log_maxlen,
                ttl_ms=settings.event_log_ttl_ms,
            )
            self._store, own = store, store.envelope_start
        self._store.on_up = self._up
        self._store.on_dropped = lambda reason: self.on_publish_dropped(reason)
        self._reach = Reach(lambda: self._store.available)
        self.live = Live(self._store.read, self._reach, own)
        self._replay = Replay(self.live, Reads(self._store.read), self._reach)
        self._writer = Writer(
            self._store,
            self._delivered,
            self._push_idless,
            self._reach,
            lambda result: self.on_append(result),
        )
        self._deletes: dict[str, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- life ----------------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Begin to listen to the live channel, if there may be readers here. Waits for nothing."""
        if self._backplane is not None and self._serves_readers:
            self._backplane.subscribe(self.settings.event_channel, self.live.message)

    async def stop(self) -> None:
        """Readers end (1012), appends that wait are given up."""
        self.close_readers(SERVICE_RESTART)
        await self._writer.stop()
        self._reach.stop()
        for task in self._tasks:
            task.cancel()
        if isinstance(self._store, RedisStore):
            self._store.close()
        if self._backplane is not None and self._serves_readers:
            self._backplane.unsubscribe(self.settings.event_channel, self.live.message)

    @property
    def breaker(self) -> BreakerState:
        """Whether appends go to the log."""
        return self._writer.breaker.state

    def _up(self) -> None:
        self.live.catch_up()
        self._writer.probe()
        deletes, self._deletes = self._deletes, {}
        for session_id in deletes:
            task = asyncio.get_running_loop().create_task(self.delete(session_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # -- writing -------------------------------------------------------------------------------------------
    async def append(
        self, session_id: str, type: str, data: Any, *, key: str | None = None, transient: bool = False
    ) -> Appended:
        """Append, then push. One order per session for concurrent callers, here and elsewhere.

        ``data``: any JSON value of at most EVENT_MAX_BYTES. ``transient``: pushed, not logged. Never raises for
        Redis: what cannot be logged goes out with ``id: null``, after at most a few seconds. Raises
        :class:`~moorage.errors.InvalidEvent`, :class:`~moorage.errors.EventTooLarge`.
        """
        event = make_event(type, data, key, int(time.time() * 1000), self.settings.event_max_bytes)
        if transient:
            self.on_append("transient")
            self._push_idless(session_id, event)
            return NOT_LOGGED
        stored = await self._writer.write(session_id, event)
        return NOT_LOGGED if stored is None else Appended(str(stored.id), stored.seq)

    def _delivered(self, session_id: str, stored: Stored, event: Event) -> None:
        if stored.id is not None:
            self.live.appended(session_id, stored.epoch, stored.id, stored.seq, event.json)

    def _push_idless(self, session_id: str, event: Event) -> None:
        self.live.idless(session_id, event.json)
        self._store.tell(session_id, event.json)

    async def delete(self, session_id: str) -> None:
        """Remove the log and end every reader of it, everywhere (4404).

        Never raises for Redis: while it is away, the readers here end now, the rest follows when it is back.
        """
        self.live.end_session(session_id, NO_SESSION)
        try:
            await self._store.delete(session_id)
        except BackplaneError:
            if len(self._deletes) < DELETES_MAX:
                self._deletes[session_id] = None
        self.live.end_session(session_id, NO_SESSION)

    # -- reading -------------------------------------------------------------------------------------------
    async def page(
        self,
        session_id: str,
        after: str,
        limit: int,
        *,
        last_seq: int | None = None,
        epoch: str | None = None,
    ) -> Page:
        """Up to ``limit`` events after an id, fewer when they are large; ``0-0`` is the beginning.

        With ``last_seq`` and ``epoch`` a gap is exact. Raises :class:`SessionDeleted`, BackplaneError.
        """
        resume = Resume(after, last_seq, epoch)
        span = await self._store.read(session_id, EventId.parse(after), limit)
        gap = find_gap(resume, span.head, span.entries[0].seq if span.entries else None)
        if gap is not None:
            return Page([], None, gap.frame())
        events = [orjson.loads(frame_of(entry).json) for entry in span.entries]
        return Page(events, str(span.entries[-1].id) if span.more else None)

    async def head(self, session_id: str) -> Head:
        """Where the log stands. Raises :class:`SessionDeleted`, BackplaneError."""
        return (await self._store.read(session_id, None, 1)).head

    # -- readers -------------------------------------------------------------------------------------------
    async def serve(self, reader: Reader, resume: Resume | None) -> None:
        """Register a reader, send ``ws_ready`` and what it missed; returns when it is live, or has ended."""
        if reader.connects and not reader.ended:
            self._numbers += 1
            key = f"reader-{self._numbers}"
            self.connections[key] = reader
            reader.on_end.append(lambda reader: self._disconnected(key))
            self.on_connected(key)
        if not reader.ended:
            reader.on_end.append(self._ended)
            await self._replay.serve(reader, resume)

    def _ended(self, reader: Reader) -> None:
        if reader.cut_off is not None:
            log.info(
                "session %s: slow %s reader cut off, %d bytes unsent",
                *(reader.session_id, reader.kind, reader.cut_off),
            )
            self.on_slow(reader.kind)

    def _disconnected(self, key: str) -> None:
        del self.connections[key]

    def close_readers(self, code: int) -> None:
        """End every reader here."""
        for reader in self.live.all_readers():
            reader.end(code)
