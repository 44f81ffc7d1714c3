"""Work that a synchronous handler leaves behind: tracked, bounded in number, its errors handled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from moorage.bugs import log_bug
from moorage.errors import BackplaneError

log = logging.getLogger(__name__)

TASKS_MAX = 10_000
"""Tasks at once in a replica. Each waits for Redis at most a few seconds, so this is a rate of some
thousands a second; what is beyond it is refused, not queued."""


class Background:
    """A set of running tasks."""

    def __init__(self, limit: int = TASKS_MAX) -> None:
        self._limit = limit
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run ``work``; False: there is too much already and it will not run."""
        if len(self._tasks) >= self._limit:
            work.close()
            return False
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return True

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, BackplaneError):
            log.warning("background work not done: %s", type(error).__name__)
        elif error is not None:
            log_bug(log, "background work", error)

    async def close(self, timeout_s: float = 2.0) -> None:
        """Wait for what runs, at most ``timeout_s``, then cancel the rest."""
        tasks = list(self._tasks)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout_s)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
