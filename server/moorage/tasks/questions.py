"""Questions that tasks of this process ask: stored, waited for, closed. Answers come by way of the storage.

The id of a question says which task asks what for the how-manieth time. So an attempt that takes a task over asks
under the same id: what was answered before is not asked again, and what is open stays one question.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections import Counter

from moorage.bugs import log_bug
from moorage.errors import BackplaneError, MoorageError
from moorage.storage.tasks import Hold, Tasks
from moorage.tasks.attempts import RETRY_S, Attempt, Superseded

log = logging.getLogger(__name__)

WAKE_S = 1.0
"""[s] Answers are looked for this often, should the wake-up that comes with one be lost."""

ID = re.compile(r"[0-9a-f]{32}\.[0-9a-f]{12}\.[0-9]{1,9}")
"""Task, question, number."""


class QuestionTimeout(MoorageError):
    """Nobody answered in time; the question cannot be answered any more."""


class _Waiting:
    """A question without an answer. ``text``: what is stored while it is open."""

    __slots__ = ("answer", "attempt", "text")

    def __init__(self, attempt: Attempt, text: bytes) -> None:
        self.attempt = attempt
        self.text = text
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()


class Numbers:
    """Gives the questions of one attempt their ids."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._asked: Counter[str] = Counter()

    def next(self, question: bytes) -> str:
        """``question``: as JSON."""
        digest = hashlib.sha256(question).hexdigest()[:12]
        self._asked[digest] += 1
        return f"{self._task_id}.{digest}.{self._asked[digest]}"


class Questions:
    """Those of ``worker``."""

    def __init__(self, store: Tasks, worker: str) -> None:
        self._store, self._worker = store, worker
        self._waiting: dict[str, _Waiting] = {}
        self._listening: asyncio.Task[None] | None = None

    async def open(self, attempt: Attempt, question_id: str, text: bytes) -> bytes | None:
        """Store it, however long the storage is away; the answer, if it has one already.

        ``text``: JSON of ``{questionId, question, untilMs}``. Raises :class:`Superseded`.
        """
        while True:
            try:
                hold = await self._store.ask(attempt.task_id, attempt.number, question_id, text)
                if hold is Hold.KEPT:
                    found = await self._store.answers(attempt.task_id, [question_id])
                    return found.answers.get(question_id)
                if hold is Hold.LOST:
                    raise Superseded(f"task {attempt.task_id}: attempt {attempt.number} is over")
            except BackplaneError:
                pass
            await asyncio.sleep(RETRY_S)

    async def wait(self, attempt: Attempt, question_id: str, text: bytes, timeout_s: float) -> bytes:
        """The answer to an open question. Raises :class:`QuestionTimeout` after ``timeout_s``; whether an answer
        came in the last moment is asked of the storage as long as that is away."""
        waiting = self._waiting[question_id] = _Waiting(attempt, text)
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        try:
            async with asyncio.timeout(timeout_s):
                return await waiting.answer
        except TimeoutError:
            late = await self._close(attempt, question_id)
            if late is None:
                raise QuestionTimeout(f"no answer within {timeout_s:g} s") from None
            return late
        finally:
            del self._waiting[question_id]

    async def _close(self, attempt: Attempt, question_id: str) -> bytes | None:
        while not (attempt.lost or attempt.over):
            try:
                return await self._store.close(attempt.task_id, attempt.number, question_id)
            except BackplaneError:
                await asyncio.sleep(RETRY_S)
        raise Superseded(f"task {attempt.task_id}: attempt {attempt.number} is over")

    async def stop(self) -> None:
        """Listen no more."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    async def _listen(self) -> None:
        """Look for answers as long as somebody waits for one."""
        while self._waiting:
            try:
                await self._store.woken(self._worker, round(WAKE_S * 1000))
                await self._look()
            except BackplaneError:
                await asyncio.sleep(RETRY_S)
            except Exception as error:
                log_bug(log, "looking for answers", error)
                await asyncio.sleep(RETRY_S)
        self._listening = None

    async def _look(self) -> None:
        by_task: dict[str, list[str]] = {}
        for question_id, waiting in self._waiting.items():
            by_task.setdefault(waiting.attempt.task_id, []).append(question_id)
        for task_id, question_ids in by_task.items():
            found = await self._store.answers(task_id, question_ids)
            for question_id in question_ids:
                asked = self._waiting.get(question_id)
                if asked is None or asked.answer.done():
                    continue
                if question_id in found.answers:
                    asked.answer.set_result(found.answers[question_id])
                elif question_id not in found.open:
                    # The storage was wiped; the record came back without it.
                    await self._store.ask(task_id, asked.attempt.number, question_id, asked.text)
