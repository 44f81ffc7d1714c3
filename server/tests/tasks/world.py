"""Workers in this process over one storage and one log, whose handlers are given by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from moorage.events.log import EventLog
from moorage.settings import Settings, load
from moorage.storage.backplane import Backplane
from moorage.storage.tasks import Tasks
from moorage.storage.tasks_memory import MemoryTasks
from moorage.storage.tasks_redis import RedisTasks
from moorage.tasks.handlers import Handler
from moorage.tasks.queue import TaskQueue
from moorage.tasks.runner import Runner
from moorage.tasks.told import before

from ..conftest import WAIT_S

ACCOUNT, SESSION = "acc", "session-1"
SECRET = "tasks-test-secret-" + "s" * 20

REPLY_MS = 5000
"""[ms] Bound of one reply of Redis. Not the ``redis_timeout_ms`` of the settings, by which workers wait after an
outage: that is short here, and a machine that stands still for as long is to be no outage."""


class World:
    """``redis_url`` and ``state_url`` None: in memory. Close it with :meth:`close`."""

    def __init__(self, redis_url: str | None = None, state_url: str | None = None, **overrides: Any) -> None:
        pace = {"task_heartbeat_ms": 50, "task_takeover_ms": 300, "redis_timeout_ms": 500}
        self.settings = load(
            secret_key=SECRET, redis_url=redis_url, state_url=state_url, **{**pace, **overrides}
        )
        self.memory = MemoryTasks() if self.settings.effective_state_url is None else None
        self.memory_log: EventLog | None = None
        self.runners: list[Runner] = []
        self._open: list[Callable[[], Awaitable[None]]] = []

    async def log(self) -> EventLog:
        """A log of its own for each worker, as for each process; in memory there is one."""
        url = self.settings.redis_url
        if url is None:
            if self.memory_log is None:
                self.memory_log = EventLog(None, self.settings)
                self._open.append(self.memory_log.stop)
            return self.memory_log
        backplane = Backplane(url, name="test", timeout_ms=REPLY_MS)
        log = EventLog(backplane, self.settings)
        await log.start()
        assert await backplane.start(WAIT_S)
        self._open += [backplane.stop, log.stop]
        return log

    def store(self) -> Tasks:
        url = self.settings.effective_state_url
        if self.memory is not None or url is None:
            assert self.memory is not None
            return self.memory
        store = RedisTasks(url, name="test", timeout_ms=REPLY_MS)
        self._open.append(store.stop)
        return store

    async def queue(self) -> TaskQueue:
        return TaskQueue(self.store(), await self.log(), handler="main", event_max_bytes=65536)

    async def worker(self, handlers: Mapping[str, Handler] | Handler, **overrides: Any) -> Runner:
        """A started worker; a single handler is ``main``."""
        known = {"main": handlers} if callable(handlers) else handlers
        settings: Settings = self.settings.model_copy(update=overrides)
        together = settings.effective_state_url == settings.redis_url
        runner = Runner(settings, self.store(), await self.log(), known, together=together)
        runner.start()
        self.runners.append(runner)
        return runner

    async def close(self) -> None:
        await asyncio.gather(*(runner.stop(0) for runner in self.runners))
        for stop in reversed(self._open):
            await stop()


async def die(runner: Runner) -> None:
    """As a killed process: nothing more is done, nothing is said."""
    left = [*runner._loops, *runner._running]
    for attempt in runner._running.values():
        if attempt is not None:
            attempt.over = True
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    runner._loops = []


async def ended(queue: TaskQueue, task_id: str) -> dict[str, Any]:
    """The status once it is an end."""
    async with asyncio.timeout(WAIT_S):
        while True:
            status = await queue.status(ACCOUNT, task_id)
            if status is not None and status.status in ("done", "failed"):
                return status.as_json()
            await asyncio.sleep(0.01)


async def events(log: EventLog, until: str = "task_result") -> list[tuple[str, Any]]:
    """``(type, data)`` of all that is kept in the log, once it has that type."""
    async with asyncio.timeout(WAIT_S):
        while True:
            head = await log.head(SESSION)
            after: str | None = before(head.oldest or "0-0")
            last_seq, found = (head.oldest_seq or 1) - 1, []
            while after is not None:
                page = await log.page(SESSION, after, 1000, last_seq=last_seq, epoch=head.epoch)
                found += [(frame["event"]["type"], frame["event"]["data"]) for frame in page.events]
                after, last_seq = page.next, page.events[-1]["seq"] if page.events else last_seq
            if any(kind == until for kind, _ in found):
                return found
            await asyncio.sleep(0.01)
