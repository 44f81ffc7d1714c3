from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from moorage_operator import queue as module
from moorage_operator.errors import Conflict, TooMany
from moorage_operator.metrics import Metrics
from moorage_operator.queue import Queue


@contextlib.asynccontextmanager
async def running(work: Callable[[str, str], Awaitable[float | None]]) -> AsyncIterator[Queue]:
    queue = Queue(work, Metrics())
    task = asyncio.create_task(queue.run())
    try:
        yield queue
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_many_wakes_are_one_pass() -> None:
    passes, done = [], asyncio.Event()

    async def work(namespace: str, name: str) -> None:
        passes.append((namespace, name))
        done.set()

    async with running(work) as queue:
        for _ in range(50):
            queue.add(("a", "b"))
        async with asyncio.timeout(5):
            await done.wait()
        assert passes == [("a", "b")]
        assert queue.oldest == 0


async def test_a_wake_during_a_pass_is_another_pass_and_never_beside_it() -> None:
    beside, most, count = 0, 0, 0
    second = asyncio.Event()

    async def work(namespace: str, name: str) -> None:
        nonlocal beside, most, count
        beside, count = beside + 1, count + 1
        most = max(most, beside)
        if count == 1:
            queue.add(("a", "b"), 0)
            await asyncio.sleep(0.05)
        beside -= 1
        if count == 2:
            second.set()

    async with running(work) as queue:
        queue.add(("a", "b"), 0)
        async with asyncio.timeout(5):
            await second.wait()
    assert most == 1


async def test_an_error_comes_back_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BACKOFF_FIRST", 0.01)
    tries: dict[str, int] = {}
    done = asyncio.Event()

    async def work(namespace: str, name: str) -> None:
        tries[name] = tries.get(name, 0) + 1
        if name == "bad" and tries[name] < 3:
            raise (Conflict("busy", status=409), ValueError("a bug"))[tries[name] - 1]
        if tries.get("bad", 0) >= 3 and "good" in tries:
            done.set()

    async with running(work) as queue:
        queue.add(("a", "bad"), 0)
        queue.add(("a", "good"), 0)
        async with asyncio.timeout(10):
            await done.wait()
    assert tries == {"bad": 3, "good": 1}


async def test_retry_after_is_honoured() -> None:
    seen = asyncio.Event()

    async def work(namespace: str, name: str) -> None:
        seen.set()
        raise TooMany("slow down", status=429, retry_after=30)

    async with running(work) as queue:
        queue.add(("a", "b"), 0)
        async with asyncio.timeout(5):
            await seen.wait()
        await asyncio.sleep(0)
        due = queue._due["a", "b"] - asyncio.get_running_loop().time()
        assert 25 < due <= 30


async def test_a_stuck_pass_shows_in_its_age_and_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PASS_SECONDS", 1.0)
    monkeypatch.setattr(module, "BACKOFF_FIRST", 30.0)
    started, ended = asyncio.Event(), asyncio.Event()

    async def work(namespace: str, name: str) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with running(work) as queue:
        queue.add(("a", "b"), 0)
        async with asyncio.timeout(5):
            await started.wait()
            await asyncio.sleep(0.01)
            assert queue.oldest > 0
            await ended.wait()
            while queue.oldest:
                await asyncio.sleep(0.01)
