"""A turn as it is rebuilt from the log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.errors import BackplaneUnavailable, EventTooLarge, InvalidEvent
from moorage.events.frames import EventId
from moorage.events.log import EventLog
from moorage.tasks.context import Task
from moorage.tasks.queue import UnknownHandler
from moorage.tasks.runner import Runner
from moorage.tasks.told import before

from ..conftest import WAIT_S
from .world import ACCOUNT, SESSION, World, ended, events


async def two_steps(task: Task, input: Any) -> str:
    for number in (1, 2):
        await task.report("step", {"n": number, "of": input})
    return "done"


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


async def turn(world: World) -> dict[str, Any]:
    found = await (await world.queue()).turn(ACCOUNT, SESSION)
    assert found is not None
    return found.as_json()


async def idle(worker: Runner) -> None:
    """Until it has told of what it kept: a task that has ended may still have its ``task_result`` to come."""
    async with asyncio.timeout(WAIT_S):
        while len(worker):
            await asyncio.sleep(0.01)


def kinds(turn: dict[str, Any]) -> list[str]:
    return [frame["event"]["type"] for frame in turn["events"]]


async def test_there_is_none_before_a_task(world: World) -> None:
    assert await (await world.queue()).turn(ACCOUNT, SESSION) is None


async def test_a_queued_turn_says_where_its_events_will_come(world: World) -> None:
    queue, log = await world.queue(), await world.log()
    await log.append(SESSION, "earlier", 1)
    task_id = await queue.start_task(ACCOUNT, SESSION, {"any": 1})
    found, head = await turn(world), await log.head(SESSION)
    assert found == {
        "taskId": task_id, "status": "queued", "attempts": 0, "input": {"any": 1}, "events": [],
        "lastEventId": head.last_id, "lastSeq": 1, "epoch": head.epoch,
    }  # fmt: skip


async def test_the_latest_turn_begins_with_its_session_created(world: World) -> None:
    queue, log = await world.queue(), await world.log()
    worker = await world.worker(two_steps)
    for number in (1, 2):
        task_id = await queue.start_task(ACCOUNT, SESSION, number)
        await ended(queue, task_id)
        await idle(worker)
    assert len(await events(log)) == 8
    found = await turn(world)
    assert kinds(found) == ["session_created", "step", "step", "task_result"]
    assert (found["taskId"], found["status"], found["result"]) == (task_id, "done", "done")
    assert [frame["seq"] for frame in found["events"]] == [5, 6, 7, 8]
    assert (found["lastSeq"], found["lastEventId"]) == (8, found["events"][-1]["id"])
    assert "truncated" not in found


async def test_a_turn_whose_beginning_is_trimmed_says_so(request: pytest.FixtureRequest) -> None:
    world = World(request.getfixturevalue("valkey").url, event_log_maxlen=100)

    async def long(task: Task, input: Any) -> None:
        for number in range(400):
            await task.report("step", number)

    try:
        queue = await world.queue()
        await world.worker(long)
        await ended(queue, await queue.start_task(ACCOUNT, SESSION, None))
        await events(await world.log())
        found = await turn(world)
        assert found["truncated"] is True
        assert kinds(found)[-1] == "task_result"
        seqs = [frame["seq"] for frame in found["events"]]
        assert seqs == list(range(seqs[0], 403))
        assert len(seqs) >= 100
    finally:
        await world.close()


async def test_a_turn_of_many_pages_is_whole_or_goes_on_where_it_stops(world: World) -> None:
    async def much(task: Task, input: Any) -> None:
        for _ in range(80):
            await task.report("step", "x" * 60_000)

    queue, log = await world.queue(), await world.log()
    worker = await world.worker(much)
    await ended(queue, await queue.start_task(ACCOUNT, SESSION, None))
    await idle(worker)
    found = await turn(world)
    assert sum(len(frame["event"]["data"]) for frame in found["events"]) < 4_800_000
    rest = await log.page(
        SESSION, found["lastEventId"], 1000, last_seq=found["lastSeq"], epoch=found["epoch"]
    )
    assert rest.gap is None
    assert found["events"][0]["event"]["type"] == "session_created"
    assert rest.events[0]["seq"] == found["lastSeq"] + 1


async def test_a_task_that_began_while_the_log_was_away(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session_created is not in the log; the turn begins where the log says that it was away."""
    queue, log = await world.queue(), await world.log()
    worker = await world.worker(two_steps)
    await ended(queue, await queue.start_task(ACCOUNT, SESSION, "before"))
    await idle(worker)
    append = EventLog.append

    async def without_first(self: EventLog, session: str, type: str, data: Any, **more: Any) -> Any:
        if type == "session_created":
            hole = {"count": 1, "from": 1, "to": 1}
            await append(self, session, "unlogged", hole)
            return await append(self, session, type, data, transient=True)
        return await append(self, session, type, data, **more)

    monkeypatch.setattr(EventLog, "append", without_first)
    task_id = await queue.start_task(ACCOUNT, SESSION, "after")
    await ended(queue, task_id)
    await idle(worker)
    assert [kind for kind, _ in await events(log)].count("task_result") == 2
    found = await turn(world)
    assert kinds(found) == ["unlogged", "step", "step", "task_result"]
    assert (found["taskId"], found["truncated"]) == (task_id, True)


async def test_the_log_away_is_an_error_and_the_status_is_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await world.queue()
    task_id = await queue.start_task(ACCOUNT, SESSION, None)

    async def away(self: EventLog, session_id: str) -> Any:
        raise BackplaneUnavailable

    monkeypatch.setattr(EventLog, "head", away)
    with pytest.raises(BackplaneUnavailable):
        await queue.turn(ACCOUNT, SESSION)
    assert (await queue.status(ACCOUNT, task_id)) is not None


async def test_what_cannot_be_queued_is_refused(world: World) -> None:
    queue = await world.queue()
    with pytest.raises(EventTooLarge):
        await queue.start_task(ACCOUNT, SESSION, "x" * 65536)
    for value in (b"bytes", nested(254)):
        with pytest.raises(InvalidEvent):
            await queue.start_task(ACCOUNT, SESSION, value)
    for name in ("a b", "x" * 65, "ü", "a:b"):
        with pytest.raises(UnknownHandler):
            await queue.start_task(ACCOUNT, SESSION, None, name)
    with pytest.raises(EventTooLarge):
        await queue.reply(ACCOUNT, SESSION, "x", "x" * 65537)
    for question_id in ("", "x", "\ud800", "a" * 256, f"{'0' * 32}.{'0' * 12}.1"):
        assert await queue.reply(ACCOUNT, SESSION, question_id, 1) is False
    assert await queue.turn(ACCOUNT, SESSION) is None


ids = st.builds(EventId, st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))


@given(ids)
def test_before_is_the_next_smaller_id(event_id: EventId) -> None:
    found = EventId.parse(before(str(event_id)))
    assert found is not None
    if event_id == (0, 0):
        assert found == (0, 0)
    else:
        assert found < event_id
        after = EventId(found.ms, found.n + 1) if found.n < 2**64 - 1 else EventId(found.ms + 1, 0)
        assert after == event_id
