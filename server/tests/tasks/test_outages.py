"""Redis away in the middle of a task: the one of the events, the one of the state, and one that is both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from structlog.testing import capture_logs

from moorage import worker
from moorage.errors import BackplaneError
from moorage.settings import load
from moorage.tasks.context import Task

from ..conftest import WAIT_S
from ..valkey import Valkey, free_port
from .world import ACCOUNT, SECRET, SESSION, World, die, ended

T = TypeVar("T")


async def patiently(ask: Callable[[], Awaitable[T]], wanted: Callable[[T], object] = bool) -> T:
    """The first answer that is wanted, through errors of a Redis that is just coming back."""
    async with asyncio.timeout(WAIT_S):
        while True:
            try:
                answer = await ask()
                if wanted(answer):
                    return answer
            except BackplaneError:
                pass
            await asyncio.sleep(0.01)


class Steps:
    """A handler that goes on when it is told to, and says how far it is."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.last = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.ids: list[str | None] = []

    async def __call__(self, task: Task, input: Any) -> int:
        self.ids.append((await task.report("step", {"n": 1})).id)
        self.begun.set()
        await self.go_on.wait()
        self.ids.append((await task.report("step", {"n": 2})).id)
        self.last.set()
        return task.attempt


def handler_of(steps: Steps) -> Any:
    async def work(task: Task, input: Any) -> int:
        return await steps(task, input)

    return work


async def test_the_state_has_the_result_while_the_log_is_away(
    valkey_factory: Callable[..., Valkey],
) -> None:
    logs, state = valkey_factory(), valkey_factory()
    world, steps = World(logs.url, state.url), Steps()
    try:
        queue = await world.queue()
        await world.worker(handler_of(steps))
        task_id = await queue.start_task(ACCOUNT, SESSION, None)
        await steps.begun.wait()
        logs.kill()
        steps.go_on.set()
        assert await ended(queue, task_id) == {"status": "done", "attempts": 1, "result": 1}
        assert steps.ids[0] is not None
        assert steps.ids[1] is None
    finally:
        await world.close()


@pytest.mark.parametrize("kept", [True, False])
async def test_one_redis_for_both_comes_back_and_the_task_is_done(
    valkey_factory: Callable[..., Valkey], kept: bool
) -> None:
    redis = valkey_factory(aof=kept)
    world, steps = World(redis.url), Steps()
    try:
        queue = await world.queue()
        await world.worker(handler_of(steps))
        task_id = await queue.start_task(ACCOUNT, SESSION, {"any": "input"})
        await steps.begun.wait()
        redis.kill()
        with pytest.raises(BackplaneError):
            await queue.start_task(ACCOUNT, SESSION, None)
        steps.go_on.set()
        await steps.last.wait()  # the task goes on without Redis
        redis.start()
        await patiently(lambda: queue.status(ACCOUNT, task_id))
        assert await ended(queue, task_id) == {"status": "done", "attempts": 1, "result": 1}
        turn = await patiently(lambda: queue.turn(ACCOUNT, SESSION))
        assert turn is not None
        assert (turn.record.id, turn.record.input) == (task_id, b'{"any":"input"}')
    finally:
        await world.close()


async def test_a_task_brought_back_after_a_wipe_is_taken_over_like_any_other(
    valkey_factory: Callable[..., Valkey],
) -> None:
    redis = valkey_factory()
    world, steps, again = World(redis.url), Steps(), Steps()
    try:
        queue = await world.queue()
        first = await world.worker(handler_of(steps))
        task_id = await queue.start_task(ACCOUNT, SESSION, None)
        await steps.begun.wait()
        redis.kill()
        redis.start()
        await patiently(lambda: queue.status(ACCOUNT, task_id))
        again.go_on.set()
        await world.worker(handler_of(again))
        assert not again.begun.is_set()
        await die(first)
        assert await ended(queue, task_id) == {"status": "done", "attempts": 2, "result": 2}
    finally:
        await world.close()


async def test_without_its_state_a_task_stands_still(valkey_factory: Callable[..., Valkey]) -> None:
    logs, state = valkey_factory(), valkey_factory(aof=True)
    world, steps = World(logs.url, state.url), Steps()
    try:
        queue, log = await world.queue(), await world.log()
        runner = await world.worker(handler_of(steps))
        task_id = await queue.start_task(ACCOUNT, SESSION, None)
        await steps.begun.wait()
        state.kill()
        [attempt] = [one for one in runner._running.values() if one is not None]
        async with asyncio.timeout(WAIT_S):
            while runner.attempts._fresh(attempt):
                await asyncio.sleep(0.01)
        steps.go_on.set()
        await asyncio.sleep(0.3)
        page = await log.page(SESSION, "0-0", 10)
        assert [frame["event"]["data"] for frame in page.events][1:] == [{"n": 1}]
        state.start()
        await patiently(lambda: queue.status(ACCOUNT, task_id))
        assert (await ended(queue, task_id))["result"] == 1
        assert all(steps.ids)
    finally:
        await world.close()


async def test_a_question_survives_a_wipe(valkey_factory: Callable[..., Valkey]) -> None:
    redis = valkey_factory()
    world, asking = World(redis.url), asyncio.Event()

    async def work(task: Task, input: Any) -> Any:
        asking.set()
        return await task.ask("still there?")

    try:
        queue = await world.queue()
        await world.worker(work)
        task_id = await queue.start_task(ACCOUNT, SESSION, None)
        await asking.wait()
        turn = await patiently(
            lambda: queue.turn(ACCOUNT, SESSION), lambda turn: turn is not None and turn.record.questions
        )
        assert turn is not None
        question = turn.as_json()["question"]
        redis.kill()
        redis.start()
        await patiently(lambda: queue.reply(ACCOUNT, SESSION, question["questionId"], "yes"))
        assert (await ended(queue, task_id))["result"] == "yes"
    finally:
        await world.close()


async def test_a_worker_that_waits_for_redis_says_so_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "REMIND_S", 0.02)
    monkeypatch.setattr(worker, "START_BOUND_S", 0.02)

    async def work(task: Task, input: Any) -> None: ...

    settings = load(secret_key=SECRET, redis_url=f"redis://127.0.0.1:{free_port()}", redis_timeout_ms=500)
    made = worker.Worker(settings, {"main": work})
    with capture_logs() as lines:
        await made.start()
        # The first ones may come before the state was tried.
        both = {"event": "waiting for Redis", "away": ["REDIS_URL", "STATE_URL"]}
        async with asyncio.timeout(WAIT_S):
            while sum(both.items() <= line.items() for line in lines) < 3:
                await asyncio.sleep(0.01)
        await made.stop()
