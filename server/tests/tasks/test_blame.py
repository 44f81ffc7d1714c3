"""What the author of a handler finds in the worker's log, and what is not there."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from moorage.tasks.blame import describe
from moorage.tasks.context import Task
from moorage.tasks.handlers import Handler, TaskFailed

from .world import ACCOUNT, SESSION, World, ended

HERE = "(test_blame.py:"
SECRET = "what somebody sent"


async def too_large(task: Task, input: Any) -> None:
    await task.report("x", {"x": "a" * 70_000})


async def no_json(task: Task, input: Any) -> None:
    await task.report("x", {"items": [1, 2, 3, {4}]})


async def bug(task: Task, input: Any) -> None:
    int(SECRET)


async def several(task: Task, input: Any) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(bug(task, input))


async def leaves(task: Task, input: Any) -> None:
    raise SystemExit(3)


async def interrupts(task: Task, input: Any) -> None:
    raise KeyboardInterrupt


async def cancels(task: Task, input: Any) -> None:
    raise asyncio.CancelledError


async def fails(task: Task, input: Any) -> None:
    raise TaskFailed(SECRET)


async def set_result(task: Task, input: Any) -> Any:
    return {"a": {1}}


async def long_result(task: Task, input: Any) -> Any:
    return "x" * 2000


@pytest.mark.parametrize(
    ("handler", "error", "logged"),
    [
        (
            too_large,
            "EventTooLarge",
            ["EventTooLarge: 70008 bytes of data, 65536 are", "too_large", HERE, "make_event"],
        ),
        (
            no_json,
            "InvalidEvent",
            ["InvalidEvent: not representable as JSON: data.items[3]: set", "no_json", HERE],
        ),
        (bug, "ValueError", ["ValueError, at bug", HERE]),
        (several, "ExceptionGroup", ["ExceptionGroup of 1: ValueError, at bug", HERE]),
        (leaves, "SystemExit", ["SystemExit, at leaves", HERE]),
        (interrupts, "KeyboardInterrupt", ["KeyboardInterrupt, at interrupts", HERE]),
        (cancels, "CancelledError", ["CancelledError, at cancels", HERE]),
        (fails, None, ["TaskFailed, at fails", HERE]),
        (set_result, None, ["The result is not representable as JSON: result.a: set"]),
        (long_result, None, ["The result has 2002 bytes, 1024 are allowed"]),
    ],
)
async def test_the_log_says_what_and_where(
    caplog: pytest.LogCaptureFixture, handler: Handler, error: str | None, logged: list[str]
) -> None:
    caplog.set_level(logging.INFO)
    world = World(task_result_max_bytes=1024)
    try:
        queue = await world.queue()
        await world.worker(handler)
        task_id = await queue.start_task(ACCOUNT, SESSION, None)
        status = await ended(queue, task_id)
        assert status["status"] == "failed"
        if error is not None:
            assert status["error"] == f"Internal error ({error})"
        [line] = [record.getMessage() for record in caplog.records if "failed: " in record.getMessage()]
        assert line.startswith(f"task {task_id} (main) failed: ")
        for part in logged:
            assert part in line
        assert SECRET not in caplog.text
    finally:
        await world.close()


async def test_debugging_shows_the_traceback(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = World()
    try:
        queue = await world.queue()
        await world.worker(bug)
        await ended(queue, await queue.start_task(ACCOUNT, SESSION, None))
        assert "Traceback" in caplog.text
        assert SECRET in caplog.text
    finally:
        await world.close()


def test_an_error_that_was_never_raised_has_no_place() -> None:
    assert describe(KeyError(SECRET), bug) == "KeyError"
