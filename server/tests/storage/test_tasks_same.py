"""Memory and Redis are one machine: whatever is done to both, both say the same."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from moorage.storage.tasks import Record, Tasks, Ticket
from moorage.storage.tasks_memory import MemoryTasks
from moorage.storage.tasks_redis import RedisTasks

from ..valkey import Valkey

LONG_MS, KEEP_MS, LOST_MAX = 600_000, 600_000, 2
TASKS = [f"{number:032x}" for number in range(3)]

tasks, workers = st.sampled_from(TASKS), st.sampled_from(["w1", "w2"])
attempts, sessions = st.integers(0, 3), st.sampled_from(["s", "t"])
questions = st.tuples(tasks, st.integers(1, 2)).map(lambda pair: (pair[0], f"{pair[0]}.q.{pair[1]}"))
steps = st.one_of(
    st.tuples(st.just("add"), tasks, sessions),
    st.tuples(st.just("take"), workers, st.sampled_from([0, LONG_MS])),
    st.tuples(st.just("begin"), workers, st.integers(0, 9)),
    st.tuples(st.just("beat"), workers, tasks, attempts),
    st.tuples(st.just("note_first"), tasks, attempts),
    st.tuples(st.just("finish"), tasks, attempts, st.sampled_from(["done", "failed"])),
    st.tuples(st.just("acknowledge"), tasks, attempts),
    st.tuples(st.just("release"), tasks, attempts),
    st.tuples(st.just("ask"), questions, attempts),
    st.tuples(st.just("close"), questions, attempts),
    st.tuples(st.just("answer"), questions, sessions, st.sampled_from(["acc", "other"])),
    st.tuples(st.just("forget"), sessions),
)


class Player:
    """Does steps to one storage; what each said is comparable with another's."""

    def __init__(self, store: Tasks) -> None:
        self.store = store
        self.tickets: list[Ticket] = []

    async def do(self, name: str, *args: Any) -> Any:
        return await getattr(self, f"_{name}", self._plain)(name, *args)

    async def _plain(self, name: str, *args: Any) -> Any:
        return await getattr(self.store, name)(*args)

    async def _add(self, name: str, task: str, session: str) -> Any:
        if await self.store.get("acc", task) is not None:
            return None  # ids are never used twice
        return await self.store.add(Record(task, "acc", session, "h", b"1"))

    async def _take(self, name: str, worker: str, takeover_ms: int) -> list[str]:
        taken = await self.store.take(worker, ["h"], 100, 0, takeover_ms)
        self.tickets += sorted(taken, key=lambda ticket: ticket.task_id)
        return sorted(ticket.task_id for ticket in taken)

    async def _begin(self, name: str, worker: str, number: int) -> Any:
        if not self.tickets:
            return None
        ticket = self.tickets[number % len(self.tickets)]
        begun = await self.store.begin(worker, ticket, 0, LOST_MAX)
        if begun is None:
            return None
        return begun.ended, comparable(begun.record)

    async def _beat(self, name: str, worker: str, task: str, attempt: int) -> Any:
        return await self.store.beat(worker, ["h"], [(task, attempt)])

    async def _note_first(self, name: str, task: str, attempt: int) -> Any:
        return await self.store.note_first(task, attempt, f"{attempt}-1", attempt)

    async def _finish(self, name: str, task: str, attempt: int, status: Any) -> Any:
        return await self.store.finish(task, attempt, status, b"%d" % attempt)

    async def _acknowledge(self, name: str, task: str, attempt: int) -> Any:
        return await self.store.acknowledge(task, attempt, KEEP_MS)

    async def _ask(self, name: str, question: tuple[str, str], attempt: int) -> Any:
        return await self.store.ask(question[0], attempt, question[1], question[1].encode())

    async def _close(self, name: str, question: tuple[str, str], attempt: int) -> Any:
        return await self.store.close(question[0], attempt, question[1])

    async def _answer(self, name: str, question: tuple[str, str], session: str, account: str) -> Any:
        return await self.store.answer(account, session, question[1], b"yes")

    async def _forget(self, name: str, session: str) -> Any:
        return await self.store.forget("acc", session)

    async def looks(self) -> list[Any]:
        records = [await self.store.get("acc", task) for task in TASKS]
        latest = [await self.store.latest("acc", session) for session in ("s", "t")]
        answers = [await self.store.answers(task, [f"{task}.q.1", f"{task}.q.2"]) for task in TASKS]
        said = [(dict(one.answers), sorted(one.open)) for one in answers]
        return [*(comparable(one) for one in (*records, *latest)), *said]


def comparable(record: Record | None) -> Any:
    return record and (record.id, record.session_id, record.status, record.attempts, record.result,
                       record.error, record.first_id, record.first_seq, sorted(record.questions))  # fmt: skip


@given(st.lists(steps, max_size=40))
@example([("add", TASKS[0], "s"), ("beat", "w1", TASKS[0], 0), ("take", "w1", LONG_MS)])
@example(
    [
        *(("add", TASKS[0], "s"), ("take", "w1", LONG_MS), ("begin", "w1", 0), ("release", TASKS[0], 1)),
        *(("beat", "w1", TASKS[0], 1), ("take", "w2", LONG_MS)),
    ]
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_both_say_the_same(valkey: Valkey, done: list[tuple[Any, ...]]) -> None:
    valkey.client.flushdb()
    real = RedisTasks(valkey.url, name="test")
    try:
        await real.take("w", ["h"], 1, 0, LONG_MS)  # makes the queue
        players = [Player(MemoryTasks()), Player(real)]
        for step in done:
            said = [await player.do(*step) for player in players]
            assert said[0] == said[1], step
            assert await players[0].looks() == await players[1].looks(), step
    finally:
        await real.stop()
