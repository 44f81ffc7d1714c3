"""Which objects want a pass, and when: each at most once in the queue, each worked on by one worker at a time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from moorage_operator.errors import ApiError, OperatorError
from moorage_operator.metrics import Metrics

log = logging.getLogger(__name__)

Key = tuple[str, str]
"""(namespace, name)"""

WORKERS = 4
"""Passes at a time; each is mostly waiting for the API server."""
SETTLE_SECONDS = 0.1
"""[s] Events come in bursts (a roll is dozens): wait for the burst, not for the end of the roll."""
PASS_SECONDS = 60.0
"""[s] Bound of a pass; each of its requests has a shorter one."""
BACKOFF_FIRST, BACKOFF_MOST = 0.5, 60.0
"""[s] After an error, doubling, with half of it at random, so that many objects do not return together."""


class Queue:
    """``work(key)`` does a pass and returns after how many seconds the key is to come back, or None."""

    def __init__(self, work: Callable[[str, str], Awaitable[float | None]], metrics: Metrics) -> None:
        self._work, self._metrics = work, metrics
        self._due: dict[Key, float] = {}
        self._running: dict[Key, float] = {}
        self._failures: dict[Key, int] = {}
        self._wake = asyncio.Event()

    def add(self, key: Key, delay: float = SETTLE_SECONDS) -> None:
        """Have a pass soon; asking twice is asking once, at the earlier time."""
        due = asyncio.get_running_loop().time() + delay
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._wake.set()

    @property
    def oldest(self) -> float:
        """[s] How long the most overdue key has waited, or the longest pass has run; 0 at rest."""
        now = asyncio.get_running_loop().time()
        waiting = [now - due for key, due in self._due.items() if key not in self._running]
        running = [now - since for since in self._running.values()]
        return max([0.0, *waiting, *running])

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(WORKERS):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            key = await self._next()
            try:
                await self._one(key)
            finally:
                del self._running[key]
                self._wake.set()

    async def _next(self) -> Key:
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            free = {key: due for key, due in self._due.items() if key not in self._running}
            self._metrics.queue.set(len(self._due))
            ready = min(free, key=lambda key: free[key], default=None)
            if ready is not None and free[ready] <= now:
                del self._due[ready]
                self._running[ready] = now
                return ready
            self._wake.clear()
            try:
                async with asyncio.timeout(free[ready] - now if ready is not None else None):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _one(self, key: Key) -> None:
        result = "ok"
        try:
            with self._metrics.seconds.time():
                async with asyncio.timeout(PASS_SECONDS):
                    again = await self._work(*key)
            self._failures.pop(key, None)
            if again is not None:
                self.add(key, again)
        except Exception as error:
            result = type(error).__name__
            count = self._failures[key] = self._failures.get(key, 0) + 1
            delay = min(BACKOFF_MOST, BACKOFF_FIRST * 2 ** min(count - 1, 10)) * random.uniform(0.5, 1)
            if isinstance(error, ApiError):
                delay = max(delay, error.retry_after)
            self.add(key, delay)
            if isinstance(error, (OperatorError, TimeoutError)):
                log.warning("%s/%s: %s: %s; again in %.1f s", *key, result, error, delay)
            else:
                log.exception("%s/%s: a pass failed; again in %.1f s", *key, delay)
        self._metrics.reconciles.labels(result).inc()
