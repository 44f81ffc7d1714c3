"""Tasks of one process, in memory: what a server without Redis uses. Same behaviour as the Redis one."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from moorage.storage.tasks import (
    GAVE_UP,
    KNOWN_FOR_MS,
    QUEUE_MAX,
    SESSION_MAX,
    Answers,
    Begun,
    Hold,
    Record,
    Refused,
    Ticket,
)

EPOCH = "memory"
"""It lives as long as the process, so nothing is ever wiped."""


@dataclass(slots=True)
class _Task:
    record: Record
    entry: str
    holder: str | None = None
    heard_ms: float = 0.0
    lost: int = 0
    open: dict[str, bytes] = field(default_factory=dict)
    answers: dict[str, bytes] = field(default_factory=dict)
    forget_ms: float | None = None


class MemoryTasks:
    """See :class:`~moorage.storage.tasks.Tasks`. Nothing here waits but :meth:`take` and :meth:`woken`, so every
    method is atomic. ``clock``: milliseconds."""

    durable = False

    def __init__(self, clock: Callable[[], float] = lambda: time.monotonic() * 1000) -> None:
        self._clock = clock
        self._tasks: dict[str, _Task] = {}
        self._queues: defaultdict[str, dict[str, str]] = defaultdict(dict)
        """handler → entry → task id, waiting or held, in order"""
        self._of: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._handlers: dict[str, float] = {}
        self._entries = itertools.count(1)
        self._queued = asyncio.Event()
        self._wakes: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def _enqueue(self, task: _Task) -> None:
        task.entry, task.holder = str(next(self._entries)), None
        self._queues[task.record.handler][task.entry] = task.record.id
        self._queued.set()

    def _find(self, task_id: str) -> _Task | None:
        task = self._tasks.get(task_id)
        if task is not None and task.forget_ms is not None and self._clock() >= task.forget_ms:
            self._remove(task)
            return None
        return task

    def _remove(self, task: _Task) -> None:
        record = task.record
        del self._tasks[record.id]
        self._queues[record.handler].pop(task.entry, None)
        of = self._of[record.account, record.session_id]
        if record.id in of:
            of.remove(record.id)
        if not of:
            del self._of[record.account, record.session_id]

    def _purge(self) -> None:
        for task_id in [task.record.id for task in self._tasks.values() if task.forget_ms is not None]:
            self._find(task_id)

    # -- what replicas do --------------------------------------------------------------------------------
    async def add(self, record: Record) -> Refused | None:
        self._purge()
        now = self._clock()
        self._handlers = {name: at for name, at in self._handlers.items() if at > now - KNOWN_FOR_MS}
        if self._handlers and record.handler not in self._handlers:
            return Refused.UNKNOWN_HANDLER
        if len(self._queues[record.handler]) >= QUEUE_MAX:
            return Refused.FULL
        task = self._tasks[record.id] = _Task(record, "")
        self._enqueue(task)
        of = self._of[record.account, record.session_id]
        of.insert(0, record.id)
        del of[SESSION_MAX:]
        return None

    async def get(self, account: str, task_id: str) -> Record | None:
        task = self._find(task_id)
        if task is None or task.record.account != account:
            return None
        return replace(task.record, questions=tuple(task.open.values()))

    async def latest(self, account: str, session_id: str) -> Record | None:
        of = self._of.get((account, session_id))
        return await self.get(account, of[0]) if of else None

    async def answer(self, account: str, session_id: str, question_id: str, answer: bytes) -> bool:
        task = self._find(question_id.partition(".")[0])
        if task is None or (task.record.account, task.record.session_id) != (account, session_id):
            return False
        if task.open.pop(question_id, None) is None:
            return False
        task.answers[question_id] = answer
        if task.holder is not None:
            self._wakes[task.holder].set()
        return True

    async def forget(self, account: str, session_id: str) -> None:
        for task_id in list(self._of.get((account, session_id), ())):
            self._remove(self._tasks[task_id])

    # -- what workers do ---------------------------------------------------------------------------------
    async def take(
        self, worker: str, handlers: Collection[str], count: int, wait_ms: int, takeover_ms: int | None
    ) -> list[Ticket]:
        tickets = self._takeable(worker, handlers, count, takeover_ms)
        if not tickets and wait_ms:
            self._queued.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._queued.wait()
            except TimeoutError:
                return []
            tickets = self._takeable(worker, handlers, count, takeover_ms)
        return tickets

    def _takeable(
        self, worker: str, handlers: Collection[str], count: int, takeover_ms: int | None
    ) -> list[Ticket]:
        now, stale, fresh = self._clock(), [], []
        for handler in handlers:
            for entry, task_id in self._queues[handler].items():
                task = self._tasks[task_id]
                if task.holder is None:
                    fresh.append(Ticket(task_id, handler, entry))
                elif takeover_ms is not None and now - task.heard_ms >= takeover_ms:
                    stale.append(Ticket(task_id, handler, entry))
        taken = (stale + fresh)[:count]
        for ticket in taken:
            task = self._tasks[ticket.task_id]
            task.holder, task.heard_ms = worker, now
        return taken

    async def begin(self, worker: str, ticket: Ticket, takeover_ms: int, lost_max: int) -> Begun | None:
        task = self._find(ticket.task_id)
        if task is None or task.entry != ticket.entry or task.holder != worker:
            return None
        record = task.record
        if record.status == "running":
            task.lost += 1
            if task.lost >= lost_max:
                task.open.clear()
                record = replace(record, status="failed", error=GAVE_UP)
        ended = record.status in ("done", "failed")
        record = replace(record, attempts=record.attempts + 1)
        task.record = record if ended else replace(record, status="running")
        task.heard_ms = self._clock()
        return Begun(replace(task.record, questions=tuple(task.open.values())), ended, EPOCH)

    def _held(self, task_id: str, attempt: int) -> _Task | None:
        task = self._find(task_id)
        return task if task is not None and task.record.attempts == attempt else None

    def _miss(self, task_id: str) -> Hold:
        return Hold.GONE if self._find(task_id) is None else Hold.LOST

    async def beat(
        self, worker: str, handlers: Collection[str], held: Sequence[tuple[str, int]]
    ) -> list[Hold]:
        now = self._clock()
        self._handlers.update(dict.fromkeys(handlers, now))
        holds = []
        for task_id, attempt in held:
            task = self._held(task_id, attempt)
            if task is not None and task.holder is not None:  # one that waits in the queue stays for anybody
                task.holder, task.heard_ms = worker, now
            holds.append(self._miss(task_id) if task is None else Hold.KEPT)
        return holds

    async def restore(self, worker: str, record: Record, epoch: str) -> tuple[Hold, str]:
        return (Hold.LOST if self._held(record.id, record.attempts) is None else Hold.KEPT), EPOCH

    async def note_first(self, task_id: str, attempt: int, first_id: str, first_seq: int) -> Hold:
        task = self._held(task_id, attempt)
        if task is None:
            return self._miss(task_id)
        task.record = replace(task.record, first_id=first_id, first_seq=first_seq)
        return Hold.KEPT

    async def finish(
        self, task_id: str, attempt: int, status: Literal["done", "failed"], outcome: bytes
    ) -> Hold:
        task = self._held(task_id, attempt)
        if task is None:
            return self._miss(task_id)
        if task.record.status not in ("done", "failed"):
            task.open.clear()
            result, error = (outcome, None) if status == "done" else (None, outcome.decode())
            task.record = replace(task.record, status=status, result=result, error=error)
        return Hold.KEPT

    async def acknowledge(self, task_id: str, attempt: int, keep_ms: int) -> Hold:
        task = self._held(task_id, attempt)
        if task is None:
            return self._miss(task_id)
        self._queues[task.record.handler].pop(task.entry, None)
        task.forget_ms = self._clock() + keep_ms if keep_ms else None
        return Hold.KEPT

    async def release(self, task_id: str, attempt: int) -> Hold:
        task = self._held(task_id, attempt)
        if task is None:
            return self._miss(task_id)
        if task.record.status == "running":
            self._queues[task.record.handler].pop(task.entry, None)
            task.record = replace(task.record, status="queued")
            self._enqueue(task)
        return Hold.KEPT

    async def ask(self, task_id: str, attempt: int, question_id: str, question: bytes) -> Hold:
        task = self._held(task_id, attempt)
        if task is None:
            return self._miss(task_id)
        if question_id not in task.answers:
            task.open[question_id] = question
        return Hold.KEPT

    async def close(self, task_id: str, attempt: int, question_id: str) -> bytes | None:
        task = self._held(task_id, attempt)
        if task is None:
            return None
        task.open.pop(question_id, None)
        return task.answers.get(question_id)

    async def answers(self, task_id: str, question_ids: Sequence[str]) -> Answers:
        task = self._find(task_id)
        if task is None:
            return Answers({}, [])
        answers = {name: task.answers[name] for name in question_ids if name in task.answers}
        return Answers(answers, [name for name in question_ids if name in task.open])

    async def woken(self, worker: str, wait_ms: int) -> bool:
        wake = self._wakes[worker]
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await wake.wait()
        except TimeoutError:
            return False
        wake.clear()
        return True
