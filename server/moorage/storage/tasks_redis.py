"""Tasks at ``STATE_URL``, by redis-py: streams with a consumer group as the queue, one Lua script per step.

A worker that dies between :meth:`RedisTasks.take` and :meth:`RedisTasks.begin`, or whose reply was lost there, leaves
its ticket pending; ``XAUTOCLAIM`` gives it to another one later, as it does with the tickets of attempts that stopped
beating.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from moorage.errors import BackplaneError, BackplaneReply, BackplaneUnavailable
from moorage.storage import tasks_scripts as scripts
from moorage.storage.pool import RedisPool
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

PREFIX = "moorage:{tasks}"
GROUP = "workers"
CONSUMER_IDLE_MS = 3_600_000
"""[ms] A consumer that did nothing for so long is a worker that is gone: living ones read twice a second."""

IN_TIME = 0.9
"""Part of a caller's patience in which a task may be queued; the rest is the way of the answer."""

_HOLDS = {1: Hold.KEPT, 0: Hold.LOST, -1: Hold.GONE}


class RedisTasks:
    """See :class:`~moorage.storage.tasks.Tasks`."""

    durable = True

    def __init__(self, url: str, *, name: str, ca_file: str | None = None, timeout_ms: int = 2000) -> None:
        self._pool = RedisPool(url, name=f"{name}-tasks", ca_file=ca_file, timeout_ms=timeout_ms)
        self._timeout_ms = timeout_ms
        self._cursors: dict[str, bytes | str] = {}
        self._groups = False

    async def start(self) -> None:
        """Nothing to wait for: connections are made when needed."""

    async def stop(self) -> None:
        await self._pool.stop()

    async def _run(self, script: str, *args: Any) -> Any:
        return await self._pool.command("EVAL", script, 1, PREFIX, *args)

    async def _hold(self, script: str, *args: Any) -> Hold:
        return _HOLDS[await self._run(script, *args)]

    # -- what replicas do --------------------------------------------------------------------------------
    async def add(self, record: Record) -> Refused | None:
        try:
            seconds, micros = await self._pool.command("TIME")
        except BackplaneError:
            raise BackplaneUnavailable("state: nothing was queued") from None
        # A frozen Redis does what waits in its buffers when it wakes, long after the caller was told 503.
        latest = int(seconds) * 1000 + int(micros) // 1000 + round(self._timeout_ms * IN_TIME)
        said = await self._run(
            scripts.ADD,
            *(record.id, record.account, record.session_id, record.handler, record.input),
            *(latest, KNOWN_FOR_MS, QUEUE_MAX, SESSION_MAX),
        )
        return Refused(said.decode()) if said else None

    async def get(self, account: str, task_id: str) -> Record | None:
        fields = await self._run(scripts.GET, task_id)
        record = _record(task_id, fields) if fields else None
        return record if record is not None and record.account == account else None

    async def latest(self, account: str, session_id: str) -> Record | None:
        found = await self._run(scripts.LATEST, account, session_id)
        return _record(found[0].decode(), found[1]) if found and found[1] else None

    async def answer(self, account: str, session_id: str, question_id: str, answer: bytes) -> bool:
        task_id = question_id.partition(".")[0]
        return bool(await self._run(scripts.ANSWER, task_id, account, session_id, question_id, answer))

    async def forget(self, account: str, session_id: str) -> None:
        await self._run(scripts.FORGET, account, session_id)

    # -- what workers do ---------------------------------------------------------------------------------
    async def take(
        self, worker: str, handlers: Collection[str], count: int, wait_ms: int, takeover_ms: int | None
    ) -> list[Ticket]:
        if not self._groups:
            await self._make_groups(handlers)
        try:
            tickets: list[Ticket] = []
            for handler in handlers if takeover_ms is not None else ():
                assert takeover_ms is not None
                tickets += await self._claim(worker, handler, count - len(tickets), takeover_ms)
                if len(tickets) >= count:
                    return tickets
            wait_ms = 0 if tickets else wait_ms
            return tickets + await self._read(worker, handlers, count - len(tickets), wait_ms)
        except BackplaneReply as error:
            if not str(error).startswith("NOGROUP"):
                raise
            self._groups = False
            return []

    async def _claim(self, worker: str, handler: str, count: int, takeover_ms: int) -> list[Ticket]:
        queue = f"{PREFIX}:queue:{handler}"
        cursor = self._cursors.get(handler, "0-0")
        reply = await self._pool.command(
            *("XAUTOCLAIM", queue, GROUP, worker, takeover_ms, cursor, "COUNT", count)
        )
        self._cursors[handler] = reply[0]
        return _tickets(handler, reply[1])

    async def _read(self, worker: str, handlers: Collection[str], count: int, wait_ms: int) -> list[Ticket]:
        block = ("BLOCK", wait_ms) if wait_ms else ()
        queues = [f"{PREFIX}:queue:{handler}" for handler in handlers]
        reply = await self._pool.command(
            *("XREADGROUP", "GROUP", GROUP, worker, "COUNT", count, *block, "STREAMS"),
            *(*queues, *[">"] * len(queues)),
            blocks_s=wait_ms / 1000,
        )
        tickets = []
        for queue, entries in reply or ():
            tickets += _tickets(queue.decode().removeprefix(f"{PREFIX}:queue:"), entries)
        return tickets

    async def _make_groups(self, handlers: Collection[str]) -> None:
        for handler in handlers:
            try:
                await self._pool.command(
                    "XGROUP", "CREATE", f"{PREFIX}:queue:{handler}", GROUP, "0", "MKSTREAM"
                )
            except BackplaneReply as error:
                if not str(error).startswith("BUSYGROUP"):
                    raise
        await self._run(scripts.TIDY, CONSUMER_IDLE_MS, *handlers)
        self._groups = True

    async def begin(self, worker: str, ticket: Ticket, takeover_ms: int, lost_max: int) -> Begun | None:
        found = await self._run(
            scripts.BEGIN,
            *(ticket.task_id, ticket.handler, ticket.entry, worker),
            *(takeover_ms, lost_max, GAVE_UP, secrets.token_hex(8)),
        )
        if not found:
            return None
        record = _record(ticket.task_id, found[1])
        return Begun(record, record.status != "running", found[0].decode())

    async def beat(
        self, worker: str, handlers: Collection[str], held: Sequence[tuple[str, int]]
    ) -> list[Hold]:
        flat = [part for one in held for part in one]
        return [
            _HOLDS[said] for said in await self._run(scripts.BEAT, worker, len(handlers), *handlers, *flat)
        ]

    async def restore(self, worker: str, record: Record, epoch: str) -> tuple[Hold, str]:
        said, now = await self._run(
            scripts.RESTORE,
            *(record.id, record.account, record.session_id, record.handler, record.input),
            *(record.attempts, worker, epoch, secrets.token_hex(8)),
        )
        return _HOLDS[said], now.decode()

    async def note_first(self, task_id: str, attempt: int, first_id: str, first_seq: int) -> Hold:
        return await self._hold(scripts.NOTE_FIRST, task_id, attempt, first_id, first_seq)

    async def finish(
        self, task_id: str, attempt: int, status: Literal["done", "failed"], outcome: bytes
    ) -> Hold:
        return await self._hold(scripts.FINISH, task_id, attempt, status, outcome)

    async def acknowledge(self, task_id: str, attempt: int, keep_ms: int) -> Hold:
        return await self._hold(scripts.ACKNOWLEDGE, task_id, attempt, keep_ms)

    async def release(self, task_id: str, attempt: int) -> Hold:
        return await self._hold(scripts.RELEASE, task_id, attempt)

    async def ask(self, task_id: str, attempt: int, question_id: str, question: bytes) -> Hold:
        return await self._hold(scripts.ASK, task_id, attempt, question_id, question)

    async def close(self, task_id: str, attempt: int, question_id: str) -> bytes | None:
        answer: bytes | None = await self._run(scripts.CLOSE, task_id, attempt, question_id)
        return answer

    async def answers(self, task_id: str, question_ids: Sequence[str]) -> Answers:
        names = [f"{kind}:{question_id}" for question_id in question_ids for kind in "qa"]
        values = await self._pool.command("HMGET", f"{PREFIX}:task:{task_id}", *names)
        answers, still_open = {}, []
        for question_id, question, answer in zip(question_ids, values[::2], values[1::2], strict=True):
            if answer is not None:
                answers[question_id] = answer
            elif question is not None:
                still_open.append(question_id)
        return Answers(answers, still_open)

    async def woken(self, worker: str, wait_ms: int) -> bool:
        reply = await self._pool.command(
            "BLPOP", f"{PREFIX}:wake:{worker}", wait_ms / 1000, blocks_s=wait_ms / 1000
        )
        return reply is not None


def _tickets(handler: str, entries: Iterable[Any]) -> list[Ticket]:
    """From entries of a queue; those that were deleted meanwhile come without fields."""
    tickets = []
    for entry in entries:
        if entry is not None and entry[1]:
            row = dict(zip(entry[1][::2], entry[1][1::2], strict=True))
            if b"task" in row:
                tickets.append(Ticket(row[b"task"].decode(), handler, entry[0].decode()))
    return tickets


def _record(task_id: str, flat: Sequence[bytes]) -> Record:
    """From the flat reply of ``HGETALL``."""
    row = dict(zip(flat[::2], flat[1::2], strict=True))
    text = {name: row[name].decode() for name in (b"account", b"session", b"handler", b"status")}
    error, first_id, first_seq = (row.get(name) for name in (b"error", b"firstId", b"firstSeq"))
    return Record(
        id=task_id,
        account=text[b"account"],
        session_id=text[b"session"],
        handler=text[b"handler"],
        input=row[b"input"],
        status=text[b"status"],  # type: ignore[arg-type]
        attempts=int(row[b"attempts"]),
        result=row.get(b"result"),
        error=error.decode() if error is not None else None,
        questions=tuple(value for name, value in row.items() if name.startswith(b"q:")),
        first_id=first_id.decode() if first_id is not None else None,
        first_seq=int(first_seq) if first_seq is not None else None,
    )
