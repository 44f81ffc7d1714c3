"""The worker's loop: takes tasks while it has room, runs each, ends gracefully."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping

from moorage.bugs import log_bug
from moorage.errors import BackplaneError
from moorage.events.log import EventLog
from moorage.metrics import Metrics
from moorage.settings import Settings
from moorage.storage.tasks import Tasks, Ticket
from moorage.tasks.attempts import RETRY_S, Attempt, Attempts
from moorage.tasks.execution import CANCEL_S, Execution, Limits
from moorage.tasks.handlers import Handler
from moorage.tasks.questions import Questions

log = logging.getLogger(__name__)

TAKE_WAIT_MS = 500
"""[ms] One wait for new tasks; tickets of dead workers are looked for as often."""

LAST_TAKE_S = 0.75
"""[s] A worker that ends waits so long for its last look for tasks: that one wait, and a reply that is normal."""


class Runner:
    """Runs tasks of ``handlers``. ``together``: ``store`` and ``events`` are in one Redis, or both in memory."""

    def __init__(
        self,
        settings: Settings,
        store: Tasks,
        events: EventLog,
        handlers: Mapping[str, Handler],
        *,
        together: bool,
    ) -> None:
        self._settings, self._store, self._handlers = settings, store, handlers
        self._worker = f"{settings.replica_id}-{secrets.token_hex(4)}"
        self.attempts = Attempts(
            store,
            self._worker,
            list(handlers),
            heartbeat_s=settings.task_heartbeat_ms / 1000,
            takeover_s=settings.task_takeover_ms / 1000,
            together=together,
        )
        self._questions = Questions(store, self._worker)
        limits = Limits(
            timeout_s=settings.task_timeout_ms / 1000,
            keep_ms=settings.task_keep_ms,
            result_max_bytes=settings.task_result_max_bytes,
            event_max_bytes=settings.event_max_bytes,
        )
        self._execution = Execution(store, events, self.attempts, self._questions, handlers, limits)
        self._running: dict[asyncio.Task[None], Attempt | None] = {}
        self._beginning: set[str] = set()
        self._room = asyncio.Event()
        self._closed = False
        self._reached_at: float | None = None
        self._loops: list[asyncio.Task[None]] = []

    def watch(self, metrics: Metrics) -> None:
        """Count there what this worker does."""
        metrics.gauge(metrics.tasks_running, lambda: len(self))
        self._execution.on_ended = lambda result: metrics.tasks_ended.labels(result).inc()

    def __len__(self) -> int:
        return len(self._running)

    def start(self) -> None:
        """Begin to take tasks; does not wait for the storage to be there."""
        self._loops = [asyncio.create_task(self._take()), asyncio.create_task(self.attempts.run())]

    async def stop(self, window_s: float) -> None:
        """Take no more; what runs has ``window_s`` to end, then it is cancelled and handed back.

        Returns at most ``window_s``, or :data:`LAST_TAKE_S` if that is longer, and the handlers' :data:`CANCEL_S` and
        one reply of Redis later. When it was cancelled it may be called again, with another window.
        """
        if not self._loops:
            return
        deadline = time.monotonic() + window_s
        taking, beating = self._loops
        self._closed = True
        self._room.set()
        # Cancelled in the middle, it could have been given tasks that nobody would know of until the take-over.
        await asyncio.wait({taking}, timeout=LAST_TAKE_S)
        taking.cancel()
        # Only now: what is handed back must not come to this worker again.
        self._execution.stopping.set()
        if self._running:
            end = "are handed back then" if self._store.durable else "are lost then: there is no REDIS_URL"
            log.info("%d tasks have %g s to end; those that do not %s", len(self._running), window_s, end)
            await asyncio.wait(set(self._running), timeout=max(0.0, deadline - time.monotonic()))
        for attempt in self._running.values():
            if attempt is not None:
                attempt.interrupted.set()
        if self._running:
            await asyncio.wait(set(self._running), timeout=CANCEL_S + self._settings.redis_timeout_ms / 1000)
        for left in (*self._running, beating):
            left.cancel()
        await asyncio.gather(taking, beating, *self._running, return_exceptions=True)
        self._loops = []
        await self._questions.stop()

    async def _take(self) -> None:
        while not self._closed:
            room = self._settings.worker_concurrency - len(self._running)
            if room <= 0:
                self._room.clear()
                await self._room.wait()
                continue
            try:
                tickets = await self._store.take(
                    self._worker, self._handlers, room, TAKE_WAIT_MS, self._takeover_ms()
                )
            except Exception as error:
                if not isinstance(error, BackplaneError):
                    log_bug(log, "taking tasks", error)
                self._reached_at = None
                await asyncio.sleep(RETRY_S)
                continue
            if self._reached_at is None:
                self._reached_at = time.monotonic()
            for ticket in tickets:
                # After a pause of this process its own ticket may come again, stale, before the storage said that it
                # has begun: run twice, the second would supersede the first.
                if ticket.task_id not in self.attempts and ticket.task_id not in self._beginning:
                    self._beginning.add(ticket.task_id)
                    running = asyncio.create_task(self._run(ticket))
                    self._running[running] = None
                    running.add_done_callback(self._ended)

    def _takeover_ms(self) -> int | None:
        """None while the storage may just be back: after an outage all workers look dead until each has tried again,
        which takes those that live one bound of Redis and the pause before it."""
        settled_s = self._settings.redis_timeout_ms / 1000 + 2 * RETRY_S
        if self._reached_at is None or time.monotonic() - self._reached_at < settled_s:
            return None
        return self._settings.task_takeover_ms

    def _ended(self, running: asyncio.Task[None]) -> None:
        del self._running[running]
        self._room.set()
        if not running.cancelled() and (error := running.exception()) is not None:
            log_bug(log, "running a task", error)

    async def _run(self, ticket: Ticket) -> None:
        sent_at = time.monotonic()
        try:
            begun = await self._store.begin(
                self._worker, ticket, self._settings.task_takeover_ms, self._settings.task_attempts
            )
        except BackplaneError:
            return  # the ticket stays ours until somebody finds it stale
        finally:
            self._beginning.discard(ticket.task_id)
        if begun is None:
            return
        attempt = self.attempts.add(begun, sent_at)
        current = asyncio.current_task()
        assert current is not None
        self._running[current] = attempt
        record = begun.record
        log.info("task %s: attempt %d of %s", record.id, record.attempts, record.handler)
        try:
            await self._execution.run(begun, attempt)
        finally:
            self.attempts.remove(attempt)
