"""The attempts of this process: told to the storage as long as they run, and ended when another one has the task.

A worker may speak for a task only while nobody else can have it. A beat that the storage confirmed keeps others away
for the take-over time from the moment it was sent, so within that (less a margin) nothing has to be asked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from moorage.bugs import log_bug
from moorage.errors import BackplaneError, MoorageError
from moorage.storage.tasks import Begun, Hold, Record, Tasks

log = logging.getLogger(__name__)

RETRY_S = 0.25
"""Between two tries to reach the storage: back well within the second after an outage, four commands a second in it."""

MARGIN = 0.25
"""Part of the take-over time in which an unrenewed hold counts as doubtful: an append takes time too."""


class Superseded(MoorageError):
    """This attempt is over: another worker has the task, or its session was deleted. Nothing it says counts."""


@dataclass(eq=False, slots=True)
class Attempt:
    """One hold on a task. ``confirmed``: when the last beat that held was sent [s, monotonic]. ``interrupted`` is
    set when the handler has to end at once."""

    record: Record
    epoch: str
    confirmed: float
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    lost: bool = False
    over: bool = False

    @property
    def task_id(self) -> str:
        return self.record.id

    @property
    def number(self) -> int:
        return self.record.attempts


class Attempts:
    """Those of ``worker``. ``together``: tasks are kept in the same Redis as the log, see :meth:`confirm`."""

    def __init__(
        self,
        store: Tasks,
        worker: str,
        handlers: Collection[str],
        *,
        heartbeat_s: float,
        takeover_s: float,
        together: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._worker, self._handlers = store, worker, handlers
        self._heartbeat_s, self._takeover_s, self._together = heartbeat_s, takeover_s, together
        self._clock = clock
        self._held: dict[str, Attempt] = {}
        self._beating: asyncio.Task[bool] | None = None
        self._failed_at = float("-inf")
        self.reached = True
        """The storage answered the last beat, or none was tried yet."""

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._held

    def add(self, begun: Begun, sent_at: float) -> Attempt:
        """``sent_at``: when the storage was asked to begin it."""
        attempt = Attempt(begun.record, begun.epoch, sent_at)
        self._held[attempt.task_id] = attempt
        return attempt

    def remove(self, attempt: Attempt) -> None:
        """It ended here; what still runs of it cannot report any more."""
        attempt.over = True
        if self._held.get(attempt.task_id) is attempt:
            del self._held[attempt.task_id]

    async def run(self) -> None:
        """Beat until cancelled: at the heartbeat, faster while the storage does not answer."""
        while True:
            try:
                self.reached = await self.beat()
            except Exception as error:
                log_bug(log, "a heartbeat", error)
                self.reached = False
            await asyncio.sleep(self._heartbeat_s if self.reached else min(RETRY_S, self._heartbeat_s))

    async def beat(self) -> bool:
        """Tell the storage now; False: it did not answer. Callers at the same time share one beat."""
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat())
            self._beating.add_done_callback(self._beaten)
        return await asyncio.shield(self._beating)

    def _beaten(self, beating: asyncio.Task[bool]) -> None:
        self._beating = None
        if not beating.cancelled():
            beating.exception()  # whoever waited has it

    async def _beat(self) -> bool:
        held, sent_at = list(self._held.values()), self._clock()
        try:
            holds = await self._store.beat(
                self._worker, self._handlers, [(one.task_id, one.number) for one in held]
            )
        except BackplaneError:
            self._failed_at = self._clock()
            return False
        for attempt, hold in zip(held, holds, strict=True):
            if hold is Hold.KEPT:
                attempt.confirmed = sent_at
            elif attempt.over:
                continue
            elif hold is Hold.LOST:
                self.lose(attempt)
            else:
                await self.restore(attempt)
        return True

    def lose(self, attempt: Attempt) -> None:
        """Another attempt has the task."""
        if not attempt.lost:
            log.warning("task %s: attempt %d lost its hold", attempt.task_id, attempt.number)
        attempt.lost = True
        attempt.interrupted.set()

    async def restore(self, attempt: Attempt) -> None:
        """Its record is gone: bring it back if the storage lost all it had, unless a later attempt was faster."""
        sent_at = self._clock()
        # Where the log had it says nothing about the log that is there now.
        record = replace(attempt.record, first_id=None, first_seq=None)
        try:
            hold, epoch = await self._store.restore(self._worker, record, attempt.epoch)
        except BackplaneError:
            return
        if hold is Hold.LOST:
            return self.lose(attempt)
        log.warning("task %s: brought back, the storage had lost it", attempt.task_id)
        attempt.record, attempt.epoch, attempt.confirmed = record, epoch, sent_at

    def _fresh(self, attempt: Attempt) -> bool:
        return self._clock() - attempt.confirmed < self._takeover_s * (1 - MARGIN)

    async def confirm(self, attempt: Attempt) -> None:
        """Returns when this attempt may report. Raises :class:`Superseded`.

        While the storage is away nobody can take the task over, unless it is away only from here. So a task whose
        state is in a Redis of its own stands still until that answers. Where it is one Redis with the log, the task
        goes on: what it reports meanwhile does not reach the log either.
        """
        while True:
            if attempt.lost or attempt.over:
                raise Superseded(f"task {attempt.task_id}: attempt {attempt.number} is over")
            if self._fresh(attempt):
                return
            if self._together and self._clock() - self._failed_at < RETRY_S:
                return
            if not await self.beat():
                if self._together:
                    return
                await asyncio.sleep(RETRY_S)
