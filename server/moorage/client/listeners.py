"""Handlers of the application: who wants which event, each update once, and no error of theirs reaches us."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

log = logging.getLogger("moorage.client")

Handler = Callable[..., Any]

SEEN_UPDATES = 1024
"""Ids of updates kept, so that two connections during a handover, or a recovery, deliver each once."""


class Tasks:
    """Background tasks that are kept from the garbage collector and can all be ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def cancel(self, timeout: float) -> None:
        """Cancel all, and wait for their end for at most ``timeout`` seconds."""
        tasks = self._tasks - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=timeout)


class Listeners:
    """Functions by event name."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._by_event: dict[str, list[Handler]] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()

    def add(self, event: str, handler: Handler) -> None:
        self._by_event.setdefault(event, []).append(handler)

    def tell(self, event: str, payload: Any) -> None:
        """Call every handler of ``event``; an ``update`` whose ``id`` was told before is dropped."""
        if event == "update" and self._doubled(payload):
            return
        for handler in self._by_event.get(event, ()):
            self.call(handler, payload)

    def call(self, function: Handler, *args: Any) -> None:
        """Run a user's function, sync or async; what it raises is logged, never passed on."""
        try:
            result = function(*args)
        except Exception:
            log.exception("error in %r", function)
            return
        if inspect.iscoroutine(result):
            self._tasks.spawn(self._guard(result, function))

    async def _guard(self, work: Awaitable[Any], function: Handler) -> None:
        try:
            await work
        except Exception:
            log.exception("error in %r", function)

    def _doubled(self, payload: Any) -> bool:
        key = payload.get("id") if isinstance(payload, dict) else None
        if not isinstance(key, str):
            return False
        if key in self._seen:
            return True
        self._seen[key] = None
        if len(self._seen) > SEEN_UPDATES:
            self._seen.popitem(last=False)
        return False
