"""What a handler gets in its hand: who it works for, and the ways to report and to ask."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import orjson

from moorage.errors import InvalidEvent
from moorage.events.frames import RESERVED_TYPES, make_event
from moorage.events.log import Appended, EventLog
from moorage.storage.state import plain
from moorage.tasks import told
from moorage.tasks.attempts import Attempt, Attempts, Superseded
from moorage.tasks.questions import Numbers, Questions, QuestionTimeout

ASK_TIMEOUT_S = 120.0
"""[s] PROTOCOL, ``ask``."""

ASK_TIMEOUT_MAX_S = 7 * 86_400.0
"""[s] Longer waits are refused: a question holds a worker's place."""


class Task:
    """One attempt at a task.

    ``task_id``, ``session_id``, ``account``: for whom. ``attempt``: 1, 2, 3 …; more than 1 means that a worker died
    in the middle of it, or handed it back, so steps may have been done before.
    """

    def __init__(
        self,
        attempt: Attempt,
        *,
        log: EventLog,
        attempts: Attempts,
        questions: Questions,
        event_max_bytes: int,
        stopping: asyncio.Event,
    ) -> None:
        record = attempt.record
        self.task_id = record.id
        self.session_id = record.session_id
        self.account = record.account
        self.attempt = record.attempts
        self._hold = attempt
        self._log = log
        self._attempts = attempts
        self._questions = questions
        self._event_max_bytes = event_max_bytes
        self._numbers = Numbers(record.id)
        self._stopping = stopping
        self._over = False

    @property
    def stopping(self) -> bool:
        """The worker was told to end. A handler that can be resumed at this step may raise
        :class:`~moorage.tasks.handlers.HandBack` now instead of being cancelled at the end of the window."""
        return self._stopping.is_set()

    async def report(
        self, type: str, data: Any, *, key: str | None = None, transient: bool = False
    ) -> Appended:
        """Tell the session: appended to its log, then pushed to whoever reads it.

        ``key`` ("step/tool") names the step, so that clients put a second report of it in the place of the first
        when the step is run again. ``transient``: pushed only, for what need not survive (text deltas, sub-contexts).
        The ``id`` of what is returned is None for a transient event and while the log is away; the task goes on.

        Raises :class:`~moorage.errors.InvalidEvent` (a reserved type, no JSON),
        :class:`~moorage.errors.EventTooLarge`, and :class:`~moorage.tasks.attempts.Superseded` when another worker
        has the task meanwhile or the handler has ended.
        """
        if type in RESERVED_TYPES:
            raise InvalidEvent(f"events of type {type} are told by Moorage itself")
        return await self._append(type, data, key, transient)

    async def _append(
        self, type: str, data: Any, key: str | None = None, transient: bool = False
    ) -> Appended:
        """Every event of a task goes through here, its ``session_created``, ``question`` and ``task_result`` too."""
        await self._attempts.confirm(self._hold)
        if self._over and type != "task_result":
            raise Superseded(f"task {self.task_id}: its handler has ended")
        return await self._log.append(self.session_id, type, data, key=key, transient=transient)

    def _end(self) -> None:
        """The handler has ended: what it left running is not heard, for ``task_result`` is the last event."""
        self._over = True

    async def ask(self, question: Any, timeout: float = ASK_TIMEOUT_S) -> Any:
        """Ask whoever uses the session, and return the answer; it may come by any replica.

        ``timeout`` in seconds. The same question asked by a later attempt is the same question: an answer that
        was given is not asked for again. Raises :class:`~moorage.tasks.questions.QuestionTimeout`, InvalidEvent and
        EventTooLarge (the question), Superseded.
        """
        if not 0 < timeout <= ASK_TIMEOUT_MAX_S:
            raise ValueError(f"timeout must be more than 0 and at most {ASK_TIMEOUT_MAX_S:g} seconds")
        until = time.monotonic() + timeout
        try:
            question_id = self._numbers.next(plain(question, "question"))
        except ValueError as error:
            raise InvalidEvent(str(error)) from None
        until_ms = int((time.time() + timeout) * 1000)
        data = {"questionId": question_id, "question": question, "untilMs": until_ms}
        text = make_event("question", data, question_id, 0, self._event_max_bytes).data
        try:
            async with asyncio.timeout(timeout):
                answer = await self._questions.open(self._hold, question_id, text)
        except TimeoutError:
            raise QuestionTimeout("the question could not be stored in time") from None
        if answer is None:
            record = self._hold.record
            if self.attempt == 1 or not await told.has(
                self._log, record, "question", "questionId", question_id
            ):
                await self._append("question", data, question_id)
            left = max(0.0, until - time.monotonic())
            answer = await self._questions.wait(self._hold, question_id, text, left)
        return orjson.loads(answer)
