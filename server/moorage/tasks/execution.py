"""The life of one attempt: begin the session's turn, run the handler, keep the result, tell of it, let go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from moorage.errors import BackplaneError, InvalidEvent, MoorageError
from moorage.events.frames import make_event
from moorage.events.log import EventLog
from moorage.storage.state import plain
from moorage.storage.tasks import Begun, Hold, Tasks
from moorage.tasks import told
from moorage.tasks.attempts import RETRY_S, Attempt, Attempts, Superseded
from moorage.tasks.blame import Ended, describe, real
from moorage.tasks.context import Task
from moorage.tasks.handlers import HandBack, Handler, TaskFailed
from moorage.tasks.questions import Questions

log = logging.getLogger(__name__)

CANCEL_S = 2.0
"""[s] A handler that was cancelled gets so long to clean up. One that takes longer runs on, but is not heard."""

ERROR_MAX = 1000
"""Characters of a failed task's error."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a handler came to: ``value`` is the result as JSON (done) or the error's text (failed)."""

    status: Literal["done", "failed"]
    value: bytes


class Stuck(MoorageError):
    """The handler was to end at once, and did not."""


async def _guarded(handler: Handler, task: Task, input: Any) -> Any:
    """A handler that calls ``sys.exit`` ends itself, not the worker and the tasks of others; one that raises
    CancelledError of itself has failed like any other."""
    try:
        return await handler(task, input)
    except (SystemExit, KeyboardInterrupt) as error:
        raise Ended from error
    except asyncio.CancelledError as error:
        current = asyncio.current_task()
        if current is None or current.cancelling():
            raise
        raise Ended from error


def _looked_at(work: asyncio.Task[Any]) -> None:
    """Nobody else may ask how it ended: the attempt may be over before."""
    if not work.cancelled():
        work.exception()


def failed(text: str) -> Outcome:
    return Outcome("failed", text[:ERROR_MAX].encode(errors="replace"))


@dataclass(frozen=True, slots=True)
class Limits:
    """``timeout_s``: of a handler, 0: none. ``keep_ms``: of an ended task's record. The others are bytes of JSON."""

    timeout_s: float
    keep_ms: int
    result_max_bytes: int
    event_max_bytes: int


class Execution:
    """Runs attempts of this worker; what they share is given once."""

    def __init__(
        self,
        store: Tasks,
        events: EventLog,
        attempts: Attempts,
        questions: Questions,
        handlers: Mapping[str, Handler],
        limits: Limits,
    ) -> None:
        self._store, self._events = store, events
        self._attempts, self._questions = attempts, questions
        self._handlers, self._limits = handlers, limits
        self.stopping = asyncio.Event()
        """The worker was told to end; handlers may see it."""
        self.on_ended: Callable[[str], None] = lambda result: None
        """``done``, ``failed``, ``handed_back``, ``stuck``, ``superseded``: an attempt ended here."""

    async def run(self, begun: Begun, attempt: Attempt) -> None:
        """To its end, or until it is interrupted: then it is handed back, if it is still ours."""
        task = Task(
            attempt,
            log=self._events,
            attempts=self._attempts,
            questions=self._questions,
            event_max_bytes=self._limits.event_max_bytes,
            stopping=self.stopping,
        )
        try:
            if begun.ended:
                record = begun.record
                value = record.result if record.status == "done" else (record.error or "").encode()
                outcome = Outcome("done" if record.status == "done" else "failed", value or b"null")
                known = await told.has(self._events, record, "task_result", "taskId", record.id)
            else:
                outcome = await self._open(task, attempt) or await self._handle(task, attempt)
                task._end()
                known = False
            await self._conclude(task, attempt, outcome, known)
            self.on_ended(outcome.status)
        except HandBack:
            await self._hand_back(attempt)
            self.on_ended("handed_back")
        except Stuck:
            # Its ticket is left as that of a dead worker: taken over by another one later, and counted.
            self._say(attempt, logging.WARNING, "not handed back, it is left to be taken over")
            self.on_ended("stuck")
        except Superseded:
            log.info("task %s: attempt %d ends without a word", attempt.task_id, attempt.number)
            self.on_ended("superseded")

    async def _open(self, task: Task, attempt: Attempt) -> Outcome | None:
        """``session_created``, once a task. An outcome if that is not possible: this worker's limit is lower than that
        of the replica that took the input."""
        record = attempt.record
        if record.first_id is not None:
            return None
        if attempt.number > 1 and await told.has(
            self._events, record, "session_created", "taskId", record.id
        ):
            return None
        data = {"taskId": record.id, "input": orjson.loads(record.input)}
        try:
            made = await task._append("session_created", data)
        except InvalidEvent as error:
            return failed(f"The input fits no event: {error}")
        if made.id is not None and made.seq is not None:
            first_id, first_seq = made.id, made.seq
            await self._persist(
                attempt, lambda: self._store.note_first(record.id, attempt.number, first_id, first_seq)
            )
        return None

    async def _handle(self, task: Task, attempt: Attempt) -> Outcome:
        """Raises :class:`Superseded` or :class:`HandBack` when there is none."""
        handler = self._handlers[attempt.record.handler]
        work = asyncio.create_task(
            _guarded(handler, task, orjson.loads(attempt.record.input)),
            name=f"handler {attempt.record.handler} of task {attempt.task_id}",
        )
        work.add_done_callback(_looked_at)
        interrupted = asyncio.create_task(attempt.interrupted.wait())
        try:
            await asyncio.wait(
                {work, interrupted}, timeout=self._limits.timeout_s or None, return_when="FIRST_COMPLETED"
            )
        finally:
            interrupted.cancel()
            if not work.done():
                work.cancel()
        ended = work.done()
        if not ended:
            await self._clean_up(attempt, work)
        if attempt.lost:
            raise Superseded(attempt.task_id)
        if attempt.interrupted.is_set() and not ended:
            raise HandBack(attempt.task_id) if work.done() else Stuck(attempt.task_id)
        if not ended:
            return failed(f"Not done after {self._limits.timeout_s:g} s")
        return self._outcome(attempt, work)

    async def _clean_up(self, attempt: Attempt, work: asyncio.Task[Any]) -> None:
        """It was cancelled: let it end."""
        await asyncio.wait({work}, timeout=CANCEL_S)
        name = attempt.record.handler
        if not work.done():
            log.error("task %s: its handler %s does not end when cancelled", attempt.task_id, name)
        elif not work.cancelled() and not isinstance(error := work.exception(), None | Superseded | HandBack):
            why = describe(real(error), self._handlers[name])
            log.warning("task %s: its handler %s was cancelled and raised %s", attempt.task_id, name, why)

    def _outcome(self, attempt: Attempt, work: asyncio.Task[Any]) -> Outcome:
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        if isinstance(error, Superseded) or (isinstance(error, HandBack) and self.stopping.is_set()):
            raise error
        if error is not None:
            return self._blame(attempt, real(error))
        try:
            value = plain(work.result(), "result")
        except ValueError as why:
            return self._no_result(attempt, f"The result is {why}")
        if len(value) > self._limits.result_max_bytes:
            limit = self._limits.result_max_bytes
            return self._no_result(attempt, f"The result has {len(value)} bytes, {limit} are allowed")
        return Outcome("done", value)

    def _blame(self, attempt: Attempt, error: BaseException) -> Outcome:
        name = attempt.record.handler
        level = logging.INFO if isinstance(error, TaskFailed) else logging.ERROR
        log.log(
            level, "task %s (%s) failed: %s", attempt.task_id, name, describe(error, self._handlers[name])
        )
        log.debug("task %s: traceback", attempt.task_id, exc_info=error)
        if isinstance(error, TaskFailed):
            return failed(str(error))
        return failed(f"Internal error ({type(error).__name__})")

    def _no_result(self, attempt: Attempt, why: str) -> Outcome:
        log.error("task %s (%s) failed: %s", attempt.task_id, attempt.record.handler, why)
        return failed(why)

    async def _conclude(self, task: Task, attempt: Attempt, outcome: Outcome, known: bool) -> None:
        """Keep first, then tell, then let go. ``known``: the log has its ``task_result``."""
        while True:
            await self._persist(
                attempt,
                lambda: self._store.finish(attempt.task_id, attempt.number, outcome.status, outcome.value),
            )
            if not known:
                await task._append("task_result", self._result_event(attempt, outcome))
                known = True
            generation = attempt.epoch
            await self._persist(
                attempt,
                lambda: self._store.acknowledge(attempt.task_id, attempt.number, self._limits.keep_ms),
            )
            if attempt.epoch == generation:
                return

    def _result_event(self, attempt: Attempt, outcome: Outcome) -> dict[str, Any]:
        """Data of ``task_result``: ``{taskId, status, result | error}``; what is too large or too deep for an event
        is left out, with ``resultOmitted``."""
        data: dict[str, Any] = {"taskId": attempt.task_id, "status": outcome.status}
        done = outcome.status == "done"
        whole = data | (
            {"result": orjson.loads(outcome.value)} if done else {"error": outcome.value.decode()}
        )
        try:
            make_event("task_result", whole, None, 0, self._limits.event_max_bytes)
        except InvalidEvent:
            return data | {"resultOmitted": True}
        return whole

    async def _persist(self, attempt: Attempt, step: Callable[[], Awaitable[Hold]]) -> None:
        """Until the storage did it. Raises :class:`Superseded`; :class:`HandBack` when the worker cannot wait."""
        while True:
            try:
                hold = await step()
                if hold is Hold.KEPT:
                    return
                if hold is Hold.LOST:
                    self._attempts.lose(attempt)
                    raise Superseded(attempt.task_id)
                await self._attempts.restore(attempt)
            except BackplaneError:
                pass
            if attempt.interrupted.is_set():
                raise HandBack(attempt.task_id)
            await asyncio.sleep(RETRY_S)

    async def _hand_back(self, attempt: Attempt) -> None:
        """Another worker may begin at once. While the storage is away, that is left to the take-over."""
        try:
            await self._store.release(attempt.task_id, attempt.number)
            self._say(attempt, logging.INFO, "handed back")
        except BackplaneError as error:
            log.warning("task %s: not handed back: %s", attempt.task_id, type(error).__name__)

    def _say(self, attempt: Attempt, level: int, what: str) -> None:
        """What becomes of a task that did not end here: nothing, if the storage ends with this process."""
        if self._store.durable:
            log.log(level, "task %s: %s", attempt.task_id, what)
        else:
            log.warning("task %s: lost, tasks without REDIS_URL end with their process", attempt.task_id)
