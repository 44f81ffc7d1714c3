"""Questions: asked, answered from anywhere, timed out, and not asked twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.tasks.context import Task
from moorage.tasks.questions import QuestionTimeout

from ..conftest import WAIT_S
from .world import ACCOUNT, SESSION, World, die, ended, events


async def asked(world: World) -> dict[str, Any]:
    """The first question of the log."""
    return next(data for kind, data in await events(await world.log(), "question") if kind == "question")


async def test_a_question_is_told_and_its_answer_reaches_the_handler(world: World) -> None:
    async def work(task: Task, input: Any) -> Any:
        return [await task.ask({"text": "which?"}), await task.ask({"text": "sure?"}, timeout=60)]

    queue, elsewhere = await world.queue(), await world.queue()
    await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    question = await asked(world)
    assert question["question"] == {"text": "which?"}
    turn = await queue.turn(ACCOUNT, SESSION)
    assert turn is not None
    assert turn.as_json()["question"] == question
    assert await elsewhere.reply("other", SESSION, question["questionId"], 1) is False
    assert await elsewhere.reply(ACCOUNT, "other", question["questionId"], 1) is False
    assert await elsewhere.reply(ACCOUNT, SESSION, question["questionId"], {"a": 1}) is True
    assert await elsewhere.reply(ACCOUNT, SESSION, question["questionId"], {"a": 2}) is False
    async with asyncio.timeout(WAIT_S):
        while (turn := await queue.turn(ACCOUNT, SESSION)) is None or not turn.record.questions:
            await asyncio.sleep(0.01)
    second = turn.as_json()["question"]
    assert second["question"] == {"text": "sure?"}
    assert await queue.reply(ACCOUNT, SESSION, second["questionId"], None) is True
    assert (await ended(queue, task_id))["result"] == [{"a": 1}, None]


async def test_the_same_question_twice_is_two_questions(world: World) -> None:
    async def work(task: Task, input: Any) -> Any:
        return await asyncio.gather(task.ask("same?"), task.ask("same?"), task.ask("other?"))

    queue = await world.queue()
    await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    async with asyncio.timeout(WAIT_S):
        while (
            len(found := [d for k, d in await events(await world.log(), "question") if k == "question"]) < 3
        ):
            await asyncio.sleep(0.01)
    assert len({question["questionId"] for question in found}) == 3
    for question in found:
        assert await queue.reply(ACCOUNT, SESSION, question["questionId"], question["question"])
    assert (await ended(queue, task_id))["result"] == ["same?", "same?", "other?"]


async def test_nobody_answers(world: World) -> None:
    async def work(task: Task, input: Any) -> str:
        with pytest.raises(QuestionTimeout):
            await task.ask("anybody?", timeout=1)  # it must be stored in time, too
        return "went on"

    queue = await world.queue()
    await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    question = await asked(world)
    assert (await ended(queue, task_id))["result"] == "went on"
    assert await queue.reply(ACCOUNT, SESSION, question["questionId"], "late") is False
    turn = await queue.turn(ACCOUNT, SESSION)
    assert turn is not None
    assert "question" not in turn.as_json()


async def test_a_task_taken_over_asks_nothing_a_second_time(world: World) -> None:
    asking = asyncio.Event()

    async def work(task: Task, input: Any) -> Any:
        first = await task.ask("first?")
        asking.set()
        return [task.attempt, first, await task.ask("second?")]

    queue = await world.queue()
    worker = await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    assert await queue.reply(ACCOUNT, SESSION, (await asked(world))["questionId"], "one")
    await asking.wait()
    async with asyncio.timeout(WAIT_S):
        while (
            len(found := [d for k, d in await events(await world.log(), "question") if k == "question"]) < 2
        ):
            await asyncio.sleep(0.01)
    await die(worker)
    second = await world.worker(work)
    async with asyncio.timeout(WAIT_S):
        while not second._questions._waiting:
            await asyncio.sleep(0.01)
    assert await queue.reply(ACCOUNT, SESSION, found[1]["questionId"], "two")
    assert (await ended(queue, task_id))["result"] == [2, "one", "two"]
    told = await events(await world.log())
    assert [kind for kind, _ in told] == ["session_created", "question", "question", "task_result"]


async def test_an_answer_given_while_no_worker_lived_is_used(world: World) -> None:
    async def work(task: Task, input: Any) -> Any:
        return [task.attempt, await task.ask("first?")]

    queue = await world.queue()
    worker = await world.worker(work)
    task_id = await queue.start_task(ACCOUNT, SESSION, None)
    question = await asked(world)
    await die(worker)
    assert await queue.reply(ACCOUNT, SESSION, question["questionId"], "meanwhile")
    await world.worker(work)
    assert (await ended(queue, task_id))["result"] == [2, "meanwhile"]
