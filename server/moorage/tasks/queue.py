"""Tasks as replicas see them: start one, look at it, answer its question."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import orjson

from moorage.errors import BackplaneUnavailable, EventTooLarge, MoorageError
from moorage.events.frames import make_event
from moorage.events.log import EventLog, SessionDeleted
from moorage.storage.state import plain
from moorage.storage.tasks import Record, Refused, Status, Tasks
from moorage.tasks import questions, told
from moorage.tasks.handlers import NAME


class UnknownHandler(MoorageError):
    """No worker has a handler of that name."""


class QueueFull(MoorageError):
    """Too many tasks of that handler wait already."""


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """What is known of a task. ``result`` is set when it is done, ``error`` when it failed."""

    status: Status
    attempts: int
    result: Any = None
    error: str | None = None

    @classmethod
    def of(cls, record: Record) -> TaskStatus:
        result = orjson.loads(record.result) if record.result is not None else None
        return cls(record.status, record.attempts, result, record.error)

    def as_json(self) -> dict[str, Any]:
        """``{status, result?, error?, attempts}``."""
        found: dict[str, Any] = {"status": self.status, "attempts": self.attempts}
        if self.status == "done":
            found["result"] = self.result
        if self.status == "failed":
            found["error"] = self.error
        return found


@dataclass(frozen=True, slots=True)
class Turn:
    """A task as its session saw it."""

    record: Record
    told: told.Told

    def as_json(self) -> dict[str, Any]:
        """``{taskId, status, attempts, input, result?, error?, question?, events, lastEventId, lastSeq, epoch,
        truncated?}``; ``question`` is ``{questionId, question, untilMs}``, the one asked last."""
        record, said = self.record, self.told
        found = {"taskId": record.id, **TaskStatus.of(record).as_json(), "input": orjson.loads(record.input)}
        questions = [orjson.loads(text) for text in record.questions]
        if questions:
            found["question"] = max(questions, key=lambda one: int(one["untilMs"]))
        found |= {"events": said.events, "lastEventId": said.last_id, "lastSeq": said.last_seq}
        found["epoch"] = said.epoch
        return found | {"truncated": True} if said.truncated else found


class TaskQueue:
    """``handler``: of tasks that name none. ``event_max_bytes``: what an input may have, since the first event of a
    task carries it."""

    def __init__(self, store: Tasks, events: EventLog, *, handler: str, event_max_bytes: int) -> None:
        self._store, self._events = store, events
        self._handler = handler
        self._event_max_bytes = event_max_bytes

    async def start_task(self, account: str, session_id: str, input: Any, handler: str | None = None) -> str:
        """Queue a task and return its id; that the session exists is the caller's to check.

        Raises :class:`~moorage.errors.InvalidEvent` (no JSON, or nested too deep for an event),
        :class:`~moorage.errors.EventTooLarge`, :class:`UnknownHandler`, :class:`QueueFull` and BackplaneError: then
        nothing is queued, unless it is BackplaneUnknown.
        """
        handler = handler or self._handler
        if NAME.fullmatch(handler) is None:
            raise UnknownHandler(handler[:64])
        task_id = uuid.uuid4().hex
        make_event("session_created", {"taskId": task_id, "input": input}, None, 0, self._event_max_bytes)
        record = Record(task_id, account, session_id, handler, plain(input))
        refused = await self._store.add(record)
        if refused is Refused.UNKNOWN_HANDLER:
            raise UnknownHandler(handler)
        if refused is Refused.FULL:
            raise QueueFull(handler)
        if refused is Refused.LATE:
            raise BackplaneUnavailable("state: not in time")
        return record.id

    async def status(self, account: str, task_id: str) -> TaskStatus | None:
        """None: unknown, another account's, or ended longer ago than tasks are kept. Raises BackplaneError."""
        record = await self._store.get(account, task_id)
        return TaskStatus.of(record) if record is not None else None

    async def turn(self, account: str, session_id: str) -> Turn | None:
        """The session's latest; None: it had no task. Raises BackplaneError."""
        record = await self._store.latest(account, session_id)
        if record is None:
            return None
        try:
            return Turn(record, await told.turn(self._events, record))
        except SessionDeleted:
            return None

    async def reply(self, account: str, session_id: str, question_id: str, answer: Any) -> bool:
        """Carry ``answer`` to the worker that asked, wherever it runs; False: unknown, another's, timed out or
        answered. Raises EventTooLarge, ValueError (no JSON), BackplaneError."""
        text = plain(answer)
        if len(text) > self._event_max_bytes:
            raise EventTooLarge(len(text), self._event_max_bytes)
        if questions.ID.fullmatch(question_id) is None:
            return False
        return await self._store.answer(account, session_id, question_id, text)

    async def forget(self, account: str, session_id: str) -> None:
        """The session was deleted: its tasks end without a word. Raises BackplaneError."""
        await self._store.forget(account, session_id)
