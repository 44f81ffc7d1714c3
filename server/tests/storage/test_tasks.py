"""One behaviour, two implementations: every test here runs over memory and over a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from moorage.storage.tasks import GAVE_UP, Begun, Hold, Record, Refused, Tasks, Ticket
from moorage.storage.tasks_memory import MemoryTasks
from moorage.storage.tasks_redis import RedisTasks

from ..conftest import WAIT_S

LONG_MS, LOST_MAX = 60_000, 3


@pytest.fixture(params=["memory", "redis"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Tasks]:
    made: Tasks = (
        MemoryTasks()
        if request.param == "memory"
        else RedisTasks(request.getfixturevalue("valkey").url, name="test")
    )
    await made.start()
    yield made
    await made.stop()


def record(number: int = 1, *, account: str = "a", session: str = "s", handler: str = "h") -> Record:
    return Record(f"{number:032x}", account, session, handler, b'{"n":%d}' % number)


async def take(store: Tasks, worker: str = "w", count: int = 10, takeover_ms: int = LONG_MS) -> list[Ticket]:
    """Repeats until something is there: a first take may only make the queue."""
    for _ in range(int(WAIT_S / 0.05)):
        tickets = await store.take(worker, ["h"], count, 50, takeover_ms)
        if tickets:
            return tickets
    raise AssertionError("no ticket came")


async def begin(store: Tasks, worker: str = "w", takeover_ms: int = LONG_MS) -> Begun:
    [ticket] = await take(store, worker, 1, takeover_ms)
    begun = await store.begin(worker, ticket, takeover_ms, LOST_MAX)
    assert begun is not None
    return begun


async def test_a_task_from_its_start_to_its_end(store: Tasks) -> None:
    one = record()
    assert await store.add(one) is None
    assert await store.get("a", one.id) == one
    begun = await begin(store)
    assert not begun.ended
    assert (begun.record.status, begun.record.attempts, begun.record.input) == ("running", 1, b'{"n":1}')
    assert await store.note_first(one.id, 1, "5-1", 7) is Hold.KEPT
    assert await store.finish(one.id, 1, "done", b'"result"') is Hold.KEPT
    assert await store.finish(one.id, 1, "failed", b"a second end changes nothing") is Hold.KEPT
    assert await store.acknowledge(one.id, 1, LONG_MS) is Hold.KEPT
    found = await store.get("a", one.id)
    assert found is not None
    assert (found.status, found.result, found.error) == ("done", b'"result"', None)
    assert (found.first_id, found.first_seq) == ("5-1", 7)
    assert await store.take("w", ["h"], 10, 0, 0) == []


async def test_every_task_is_given_to_one_worker(store: Tasks) -> None:
    for number in range(40):
        await store.add(record(number))
    taken: list[str] = []
    while len(taken) < 40:
        rounds = await asyncio.gather(*(store.take(f"w{n}", ["h"], 3, 50, LONG_MS) for n in range(4)))
        taken += [ticket.task_id for tickets in rounds for ticket in tickets]
    assert sorted(taken) == [record(number).id for number in range(40)]


async def test_only_the_named_handlers_are_taken(store: Tasks) -> None:
    await store.add(record(1, handler="other"))
    await store.add(record(2))
    assert [ticket.task_id for ticket in await take(store)] == [record(2).id]
    assert await store.take("w", ["h"], 10, 10, LONG_MS) == []


async def test_another_accounts_task_is_unknown(store: Tasks) -> None:
    await store.add(record())
    await begin(store)
    assert await store.ask(record().id, 1, f"{record().id}.q.1", b'"?"') is Hold.KEPT
    assert await store.get("b", record().id) is None
    assert await store.latest("b", "s") is None
    for account, session in (("b", "s"), ("a", "t"), ("", "")):
        assert await store.answer(account, session, f"{record().id}.q.1", b"1") is False
    assert await store.answer("a", "s", f"{record().id}.q.1", b"1") is True


async def test_the_latest_task_of_a_session(store: Tasks) -> None:
    assert await store.latest("a", "s") is None
    for number in (1, 2):
        await store.add(record(number))
    await store.add(record(3, session="t"))
    latest = await store.latest("a", "s")
    assert latest is not None
    assert latest.id == record(2).id


async def test_a_silent_workers_task_is_taken_over_and_its_steps_are_refused(store: Tasks) -> None:
    await store.add(record())
    await begin(store, "w1")
    second = await begin(store, "w2", takeover_ms=1)
    task_id = record().id
    assert second.record.attempts == 2
    assert await store.finish(task_id, 1, "done", b"1") is Hold.LOST
    assert await store.ask(task_id, 1, "q", b"1") is Hold.LOST
    assert await store.note_first(task_id, 1, "1-1", 1) is Hold.LOST
    assert await store.release(task_id, 1) is Hold.LOST
    assert await store.acknowledge(task_id, 1, LONG_MS) is Hold.LOST
    held = [(task_id, 1), (task_id, 2)]
    assert await store.beat("w1", ["h"], held) == [Hold.LOST, Hold.KEPT]
    found = await store.get("a", task_id)
    assert found is not None
    assert (found.status, found.result, found.first_id) == ("running", None, None)


async def test_a_beating_workers_task_stays_its_own(store: Tasks) -> None:
    await store.add(record())
    await begin(store, "w1")
    for _ in range(20):
        assert await store.beat("w1", ["h"], [(record().id, 1)]) == [Hold.KEPT]
        assert await store.take("w2", ["h"], 1, 0, 2000) == []


async def test_a_ticket_that_went_to_another_begins_nothing(store: Tasks) -> None:
    await store.add(record())
    [first] = await take(store, "w1")
    [second] = await take(store, "w2", takeover_ms=1)
    assert await store.begin("w1", first, LONG_MS, LOST_MAX) is None
    assert await store.begin("w2", second, LONG_MS, LOST_MAX) is not None


async def test_a_task_that_kills_its_workers_is_ended(store: Tasks) -> None:
    await store.add(record())
    for number in range(1, LOST_MAX + 1):
        begun = await begin(store, f"w{number}", takeover_ms=1)
        assert (begun.ended, begun.record.attempts) == (False, number)
    last = await begin(store, "w9", takeover_ms=1)
    assert (last.ended, last.record.status, last.record.error) == (True, "failed", GAVE_UP)
    assert await store.acknowledge(record().id, last.record.attempts, LONG_MS) is Hold.KEPT


async def test_an_untold_end_is_told_by_another(store: Tasks) -> None:
    await store.add(record())
    await begin(store, "w1")
    await store.finish(record().id, 1, "done", b"[1]")
    begun = await begin(store, "w2", takeover_ms=1)
    assert (begun.ended, begun.record.status, begun.record.result) == (True, "done", b"[1]")
    assert await store.acknowledge(record().id, 1, LONG_MS) is Hold.LOST


async def test_a_released_task_is_begun_at_once_and_nobody_died(store: Tasks) -> None:
    await store.add(record())
    for number in range(1, 3 * LOST_MAX):
        begun = await begin(store, f"w{number}")
        assert (begun.ended, begun.record.attempts) == (False, number)
        assert await store.release(record().id, number) is Hold.KEPT
        found = await store.get("a", record().id)
        assert found is not None
        assert found.status == "queued"


async def test_a_question_and_its_answer(store: Tasks) -> None:
    await store.add(record())
    await begin(store)
    task_id, question = record().id, f"{record().id}.abc.1"
    assert await store.answer("a", "s", question, b"1") is False
    assert await store.ask(task_id, 1, question, b'"really?"') is Hold.KEPT
    latest = await store.latest("a", "s")
    assert latest is not None
    assert latest.questions == (b'"really?"',)
    assert list((await store.answers(task_id, [question, "other"])).open) == [question]
    waiting = asyncio.create_task(store.woken("w", 5000))
    assert await store.answer("a", "s", question, b'"yes"') is True
    assert await waiting is True
    assert await store.answer("a", "s", question, b'"no"') is False
    assert dict((await store.answers(task_id, [question])).answers) == {question: b'"yes"'}
    # A later attempt that asks the same finds it answered.
    assert await store.ask(task_id, 1, question, b'"really?"') is Hold.KEPT
    found = await store.get("a", task_id)
    assert found is not None
    assert found.questions == ()
    assert await store.close(task_id, 1, question) == b'"yes"'


async def test_a_closed_question_cannot_be_answered(store: Tasks) -> None:
    await store.add(record())
    await begin(store)
    question = f"{record().id}.abc.1"
    await store.ask(record().id, 1, question, b"1")
    assert await store.close(record().id, 1, question) is None
    assert await store.answer("a", "s", question, b"1") is False
    await store.ask(record().id, 1, question, b"1")
    await store.finish(record().id, 1, "done", b"1")
    assert await store.answer("a", "s", question, b"1") is False


async def test_nobody_wakes_a_worker_without_an_answer(store: Tasks) -> None:
    assert await store.woken("w", 20) is False


async def test_a_handler_nobody_announced_is_refused_once_others_are_known(store: Tasks) -> None:
    assert await store.add(record(1)) is None
    await store.beat("w", ["h"], [])
    assert await store.add(record(2, handler="misspelt")) is Refused.UNKNOWN_HANDLER
    assert await store.get("a", record(2).id) is None
    assert await store.add(record(3)) is None


async def test_a_forgotten_sessions_tasks_are_gone(store: Tasks) -> None:
    for number in (1, 2, 3):
        await store.add(record(number))
    begun = await begin(store)
    await store.forget("a", "s")
    assert await store.latest("a", "s") is None
    assert await store.get("a", record(2).id) is None
    assert await store.beat("w", ["h"], [(begun.record.id, 1)]) == [Hold.GONE]
    assert await store.finish(begun.record.id, 1, "done", b"1") is Hold.GONE
    # Gone for good: nothing was lost since it was begun.
    assert (await store.restore("w", begun.record, begun.epoch))[0] is Hold.LOST
    assert await store.get("a", begun.record.id) is None
    for ticket in await store.take("w", ["h"], 10, 10, 0):
        assert await store.begin("w", ticket, LONG_MS, LOST_MAX) is None
    await store.forget("a", "s")


async def test_an_ended_task_is_kept_for_its_time_only(store: Tasks) -> None:
    await store.add(record())
    await begin(store)
    await store.finish(record().id, 1, "failed", b"why")
    found = await store.get("a", record().id)
    assert found is not None
    assert found.error == "why"
    await store.acknowledge(record().id, 1, 1)
    async with asyncio.timeout(WAIT_S):
        while await store.get("a", record().id) is not None:
            await asyncio.sleep(0.005)
    assert await store.latest("a", "s") is None
