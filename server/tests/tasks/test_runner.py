"""A worker and what it makes of a task, over memory and over Redis."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest

from moorage.errors import BackplaneUnavailable, EventTooLarge, InvalidEvent
from moorage.events.frames import RESERVED_TYPES
from moorage.storage.tasks_memory import MemoryTasks
from moorage.tasks.attempts import Superseded
from moorage.tasks.context import Task
from moorage.tasks.handlers import HandBack, TaskFailed

from ..conftest import WAIT_S
from .world import ACCOUNT, SESSION, World, die, ended, events


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
        (SystemExit(1), "Internal error (RuntimeError)"),
        (b"bytes", "The result is not representable as JSON"),
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


async def test_a_dead_workers_task_is_run_again_by_another(world: World) -> None:
    begun = asyncio.Event()

    async def work(task: Task, input: Any) -> int:
        await task.report("step", {"attempt": task.attempt}, key="1/look")
        begun.set()
        if task.attempt == 1:
            await asyncio.sleep(WAIT_S)
        return task.attempt

    queue, log = await world.queue(), await world.log()
    first = await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    await begun.wait()
    await die(first)
    await world.worker(work)
    assert await ended(queue, task_id) == {"status": "done", "attempts": 2, "result": 2}
    assert await events(log) == [
        ("session_created", {"taskId": task_id, "input": None}),
        ("step", {"attempt": 1}),
        ("step", {"attempt": 2}),
        ("task_result", {"taskId": task_id, "status": "done", "result": 2}),
    ]


async def test_nothing_of_a_superseded_attempt_reaches_the_log(world: World) -> None:
    """As after a SIGSTOP: it did not beat for a while, another has the task, and now it goes on."""
    go_on, said = asyncio.Event(), asyncio.Event()
    errors: list[BaseException] = []

    async def slow(task: Task, input: Any) -> str:
        try:
            await go_on.wait()
            await task.report("step", "of the old attempt")
        except BaseException as error:
            errors.append(error)
            raise
        finally:
            said.set()
        return "old"

    async def quick(task: Task, input: Any) -> str:
        return "new"

    queue, log = await world.queue(), await world.log()
    frozen = await world.worker(slow)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    async with asyncio.timeout(WAIT_S):
        while len(frozen) == 0:
            await asyncio.sleep(0.005)
    for loop in frozen._loops:
        loop.cancel()
    await world.worker(quick)
    assert (await ended(queue, task_id))["result"] == "new"
    go_on.set()
    await said.wait()
    assert isinstance(errors[0], Superseded)
    async with asyncio.timeout(WAIT_S):
        while len(frozen):
            await asyncio.sleep(0.005)
    assert await ended(queue, task_id) == {"status": "done", "attempts": 2, "result": "new"}
    assert [kind for kind, _ in await events(log)] == ["session_created", "task_result"]


async def test_an_outage_is_no_death() -> None:
    """When the storage is back, all workers look dead until each has tried again."""

    class Watched(MemoryTasks):
        away = False
        asked: ClassVar[list[int | None]] = []

        async def take(self, worker: str, handlers: Any, count: int, wait_ms: int, takeover_ms: Any) -> Any:
            self.asked.append(takeover_ms)
            if self.away:
                raise BackplaneUnavailable
            return await super().take(worker, handlers, count, 1, takeover_ms)

    async def work(task: Task, input: Any) -> None: ...

    async def until_taken_over(store: Watched) -> None:
        async with asyncio.timeout(WAIT_S):
            while store.asked[-1:] != [300]:
                await asyncio.sleep(0.005)

    world = World()
    world.memory = store = Watched()
    try:
        await world.worker(work)
        await until_taken_over(store)
        store.away = True
        failed = len(store.asked)
        async with asyncio.timeout(WAIT_S):
            while len(store.asked) < failed + 2:
                await asyncio.sleep(0.005)
        store.away = False
        back = len(store.asked)
        await until_taken_over(store)
        assert store.asked[0] is None
        assert store.asked[back : back + 2] == [None, None]
    finally:
        await world.close()


async def test_an_end_that_was_kept_but_not_told_is_told_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Task._append
    told = asyncio.Event()

    async def dies_before_the_result(self: Task, type: str, *args: Any) -> Any:
        if type == "task_result" and self.attempt == 1:
            told.set()
            await asyncio.sleep(WAIT_S)
        return await append(self, type, *args)

    async def dies_after_the_result(self: Task, type: str, *args: Any) -> Any:
        made = await append(self, type, *args)
        if type == "task_result" and self.attempt == 1:
            told.set()
            await asyncio.sleep(WAIT_S)
        return made

    async def work(task: Task, input: Any) -> int:
        return task.attempt

    queue, log = await world.queue(), await world.log()
    for number, dies in enumerate((dies_before_the_result, dies_after_the_result), 1):
        told.clear()
        monkeypatch.setattr(Task, "_append", dies)
        first = await world.worker(work)
        task_id = await queue.start_task(ACCOUNT, SESSION, number)
        await told.wait()
        await die(first)
        assert (await ended(queue, task_id))["result"] == 1
        second = await world.worker(work)
        async with asyncio.timeout(WAIT_S):
            while (await queue.status(ACCOUNT, task_id)).attempts < 2 or len(second):  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
        told_now = [data for kind, data in await events(log) if kind == "task_result"]
        assert [data["taskId"] for data in told_now].count(task_id) == 1
        assert len(told_now) == number
        await second.stop(0)


async def test_a_stopped_worker_lets_its_task_end(world: World) -> None:
    begun = asyncio.Event()

    async def work(task: Task, input: Any) -> bool:
        begun.set()
        while not task.stopping:
            await asyncio.sleep(0.01)
        return task.stopping

    queue = await world.queue()
    worker = await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    await begun.wait()
    await worker.stop(WAIT_S)
    assert await ended(queue, task_id) == {"status": "done", "attempts": 1, "result": True}


@pytest.mark.parametrize("willing", [True, False])
async def test_a_stopped_worker_hands_back_what_does_not_end(world: World, willing: bool) -> None:
    begun = asyncio.Event()

    async def work(task: Task, input: Any) -> int:
        begun.set()
        if task.attempt == 1:
            while not (willing and task.stopping):
                await asyncio.sleep(0.01)
            raise HandBack
        return task.attempt

    queue, log = await world.queue(), await world.log()
    # Only a task that was handed back is begun before the take-over.
    pace = {"task_takeover_ms": 60_000, "task_heartbeat_ms": 50}
    worker = await world.worker(work, **pace)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    await begun.wait()
    await worker.stop(WAIT_S if willing else 0.05)
    status = await queue.status(ACCOUNT, task_id)
    assert status is not None
    assert status.status == "queued"
    await world.worker(work, **pace)
    assert (await ended(queue, task_id))["result"] == 2
    assert [kind for kind, _ in await events(log)] == ["session_created", "task_result"]


async def test_handing_back_without_need_is_a_failure(world: World) -> None:
    async def work(task: Task, input: Any) -> None:
        raise HandBack

    queue = await world.queue()
    await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    assert (await ended(queue, task_id))["error"] == "Internal error (HandBack)"


async def test_a_task_that_kills_its_workers_fails_in_the_end(world: World) -> None:
    queue, log = await world.queue(), await world.log()
    begun = asyncio.Event()

    async def work(task: Task, input: Any) -> None:
        begun.set()
        await asyncio.sleep(WAIT_S)

    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    for _ in range(2):
        begun.clear()
        worker = await world.worker(work, task_attempts=2)
        await begun.wait()
        await die(worker)
    await world.worker(work, task_attempts=2)
    assert (await ended(queue, task_id))["status"] == "failed"
    assert [kind for kind, _ in await events(log)] == ["session_created", "task_result"]


async def test_no_more_tasks_at_once_than_there_is_room_for(world: World) -> None:
    running, most = 0, 0

    async def work(task: Task, input: Any) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
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
