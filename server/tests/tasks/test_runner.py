"""A worker and what it makes of a task, over memory and over Redis."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.errors import EventTooLarge, InvalidEvent
from moorage.events.frames import RESERVED_TYPES
from moorage.tasks.attempts import Superseded
from moorage.tasks.context import Task
from moorage.tasks.handlers import TaskFailed

from ..conftest import WAIT_S
from .world import ACCOUNT, SESSION, World, ended, events


async def test_a_task_is_told_from_its_start_to_its_result(world: World) -> None:
    async def work(task: Task, input: Any) -> Any:
        assert (task.account, task.session_id, task.attempt) == (ACCOUNT, SESSION, 1)
        logged = await task.report("step", {"n": 1}, key="1/look")
        passing = await task.report("text_delta", "…", transient=True)
        assert logged.id is not None
        assert (passing.id, passing.seq) == (None, None)
        return {"sum": sum(input)}

    queue, log = await world.queue(), await world.log()
    await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, [1, 2])
    assert await events(log) == [
        ("session_created", {"taskId": task_id, "input": [1, 2]}),
        ("step", {"n": 1}),
        ("task_result", {"taskId": task_id, "status": "done", "result": {"sum": 3}}),
    ]
    assert await ended(queue, task_id) == {"status": "done", "attempts": 1, "result": {"sum": 3}}


@pytest.mark.parametrize(
    ("outcome", "error"),
    [
        (TaskFailed("no berth is free"), "no berth is free"),
        (KeyError("secret"), "Internal error (KeyError)"),
        (asyncio.CancelledError(), "Internal error (CancelledError)"),
        (SystemExit(1), "Internal error (SystemExit)"),
        ({"items": [1, {2}]}, "The result is not representable as JSON: result.items[1]: set"),
        ("x" * 2000, "The result has 2002 bytes, 1024 are allowed"),
    ],
)
async def test_a_handler_that_fails_ends_its_task(outcome: Any, error: str) -> None:
    async def work(task: Task, input: Any) -> Any:
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    world = World(task_result_max_bytes=1024)
    try:
        queue, log = await world.queue(), await world.log()
        await world.worker(work)
        task_id = await queue.start_task(ACCOUNT, SESSION, None)
        assert await ended(queue, task_id) == {"status": "failed", "attempts": 1, "error": error}
        result = {"taskId": task_id, "status": "failed", "error": error}
        assert (await events(log))[-1] == ("task_result", result)
    finally:
        await world.close()


async def test_a_handler_has_its_time(world: World) -> None:
    cancelled = asyncio.Event()

    async def work(task: Task, input: Any) -> None:
        try:
            await asyncio.sleep(WAIT_S)
        finally:
            cancelled.set()

    queue = await world.queue()
    await world.worker(work, task_timeout_ms=50)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    assert (await ended(queue, task_id))["error"] == "Not done after 0.05 s"
    assert cancelled.is_set()


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("result", ["x" * 100_000, nested(254)])
async def test_a_result_that_fits_no_event_is_left_out_of_it(world: World, result: Any) -> None:
    async def work(task: Task, input: Any) -> Any:
        return result

    queue, log = await world.queue(), await world.log()
    await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    assert (await ended(queue, task_id))["result"] == result
    told = {"taskId": task_id, "status": "done", "resultOmitted": True}
    assert (await events(log))[-1] == ("task_result", told)


async def test_what_is_no_event_is_refused(world: World) -> None:
    async def work(task: Task, input: Any) -> Any:
        for kind in sorted(RESERVED_TYPES):
            with pytest.raises(InvalidEvent):
                await task.report(kind, {})
        with pytest.raises(InvalidEvent):
            await task.report("step", b"bytes")
        with pytest.raises(InvalidEvent):
            await task.ask({1: 2})
        with pytest.raises(EventTooLarge):
            await task.report("step", "x" * 65536)
        with pytest.raises(EventTooLarge):
            await task.ask("x" * 65536)
        with pytest.raises(ValueError, match="timeout"):
            await task.ask("?", timeout=0)
        return "all"

    queue, log = await world.queue(), await world.log()
    await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    assert (await ended(queue, task_id))["result"] == "all"
    assert [kind for kind, _ in await events(log)] == ["session_created", "task_result"]


async def test_no_more_tasks_at_once_than_there_is_room_for(world: World) -> None:
    running, most, full = 0, 0, asyncio.Event()

    async def work(task: Task, input: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await full.wait()  # however slowly they come
        await asyncio.sleep(0.02)
        running -= 1

    queue = await world.queue()
    await world.worker(work, worker_concurrency=3)
    task_ids = [await queue.start_task(ACCOUNT, SESSION, n) for n in range(10)]
    for task_id in task_ids:
        assert (await ended(queue, task_id))["status"] == "done"
    assert most == 3


async def test_a_deleted_sessions_task_ends_without_a_word(world: World) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def work(task: Task, input: Any) -> None:
        begun.set()
        try:
            await asyncio.sleep(WAIT_S)
        finally:
            cancelled.set()

    queue, log = await world.queue(), await world.log()
    worker = await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    await begun.wait()
    await queue.forget(ACCOUNT, SESSION)
    async with asyncio.timeout(WAIT_S):
        await cancelled.wait()
        while len(worker):
            await asyncio.sleep(0.005)
    assert await queue.status(ACCOUNT, task_id) is None
    assert [kind for kind, _ in await events(log, "session_created")] == ["session_created"]


async def test_what_ends_after_its_session_was_deleted_does_not_come_back(world: World) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def work(task: Task, input: Any) -> str:
        begun.set()
        await go_on.wait()
        return "late"

    queue, log = await world.queue(), await world.log()
    # No heartbeat tells it before it ends.
    worker = await world.worker(work, task_heartbeat_ms=60_000, task_takeover_ms=120_000)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    await begun.wait()
    await queue.forget(ACCOUNT, SESSION)
    go_on.set()
    async with asyncio.timeout(WAIT_S):
        while len(worker):
            await asyncio.sleep(0.005)
    assert await queue.status(ACCOUNT, task_id) is None
    assert await queue.turn(ACCOUNT, SESSION) is None
    assert [kind for kind, _ in await events(log, "session_created")] == ["session_created"]


async def test_what_a_handler_left_running_is_not_heard_after_the_result(world: World) -> None:
    left: list[asyncio.Task[None]] = []
    refused = asyncio.Event()

    async def talk(task: Task) -> None:
        try:
            while True:
                await task.report("step", "still talking")
                await asyncio.sleep(0)
        except Superseded:
            refused.set()

    async def work(task: Task, input: Any) -> None:
        left.append(asyncio.create_task(talk(task)))
        await task.report("step", "mine")

    queue, log = await world.queue(), await world.log()
    await world.worker(work)
    await queue.start_task(ACCOUNT, SESSION, None)
    async with asyncio.timeout(WAIT_S):
        await refused.wait()
    assert [kind for kind, _ in await events(log)][-1] == "task_result"


async def test_an_input_that_fits_no_event_of_this_worker() -> None:
    """Its limit is lower than that of the replica."""

    async def work(task: Task, input: Any) -> None:
        raise AssertionError

    world = World(event_max_bytes=256)
    try:
        queue, log = await world.queue(), await world.log()
        await world.worker(work)
        task_id = await queue.start_task(ACCOUNT, SESSION, "x" * 300)
        error = (await ended(queue, task_id))["error"]
        assert error.startswith("The input fits no event")
        assert [kind for kind, _ in await events(log)] == ["task_result"]
    finally:
        await world.close()
