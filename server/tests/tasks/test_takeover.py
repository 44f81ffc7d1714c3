"""Workers that die, hang, end and come too late, over memory and over Redis."""

from __future__ import annotations

import asyncio
import gc
from typing import Any, ClassVar

import pytest

from moorage.errors import BackplaneUnavailable
from moorage.storage.tasks import GAVE_UP
from moorage.storage.tasks_memory import MemoryTasks
from moorage.tasks import execution
from moorage.tasks.attempts import Superseded
from moorage.tasks.context import Task
from moorage.tasks.handlers import HandBack

from ..conftest import WAIT_S
from .world import ACCOUNT, SESSION, World, die, ended, events


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


async def test_a_workers_own_ticket_that_comes_again_while_it_begins_is_not_run_twice(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a pause of the process that is longer than the take-over."""
    came_again, twice = asyncio.Event(), 0
    attempts: list[int] = []

    async def work(task: Task, input: Any) -> None:
        attempts.append(task.attempt)

    queue = await world.queue()
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    worker = await world.worker(work, task_heartbeat_ms=100, task_takeover_ms=300)
    take, begin = worker._store.take, worker._store.begin

    async def taking(*args: Any) -> Any:
        nonlocal twice
        tickets = await take(*args)
        twice += len(tickets)
        if twice > 1 and not tickets:
            came_again.set()  # and the worker has seen the second
        return tickets

    async def beginning(*args: Any) -> Any:
        await came_again.wait()
        return await begin(*args)

    monkeypatch.setattr(worker._store, "take", taking)
    monkeypatch.setattr(worker._store, "begin", beginning)
    async with asyncio.timeout(WAIT_S):
        assert await ended(queue, task_id) == {"status": "done", "attempts": 1, "result": None}
    assert attempts == [1]


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


async def test_a_handler_that_ignores_its_cancellation_is_taken_over_and_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handed back at once and uncounted, it would go through all workers of a rolling update, for ever."""
    monkeypatch.setattr(execution, "CANCEL_S", 0.05)
    begun, over = asyncio.Event(), asyncio.Event()
    attempts: list[int] = []

    async def swallow(task: Task, input: Any) -> None:
        attempts.append(task.attempt)
        begun.set()
        while not over.is_set():
            try:
                await over.wait()
            except asyncio.CancelledError:
                pass

    queue = await world.queue()
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    for attempt in (1, 2):
        worker = await world.worker(swallow, task_attempts=2)
        await asyncio.wait_for(begun.wait(), WAIT_S)
        begun.clear()
        await worker.stop(0)
        assert attempts[-1] == attempt
        status = await queue.status(ACCOUNT, task_id)
        assert status is not None
        assert status.status == "running"
    await world.worker(swallow, task_attempts=2)
    end = await ended(queue, task_id)
    over.set()
    assert (end["status"], end["error"], attempts) == ("failed", GAVE_UP, [1, 2])


async def test_what_an_old_attempt_raises_is_no_traceback(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    ended_here = asyncio.Event()

    async def slow(task: Task, input: Any) -> None:
        try:
            await asyncio.sleep(WAIT_S)
        except asyncio.CancelledError:
            pass
        finally:
            ended_here.set()
        await task.report("step", "of the old attempt")

    queue = await world.queue()
    worker = await world.worker(slow)
    await queue.start_task(ACCOUNT, SESSION, None)
    async with asyncio.timeout(WAIT_S):
        while not (held := [(run, one) for run, one in worker._running.items() if one is not None]):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        [(running, attempt)] = held
        worker.attempts.lose(attempt)
        await ended_here.wait()
        await asyncio.wait([running])  # and not until nothing runs: it may take the task again
    await worker.stop(0)
    gc.collect()
    assert "never retrieved" not in caplog.text
