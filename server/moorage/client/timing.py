"""Waiting: growing pauses between attempts, and waiting for a condition without polling."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

FIRST_S = 0.25
"""[s] Upper end of the first pause (PROTOCOL: first after 0–250 ms)."""

MOST_S = 2.0
"""[s] Upper end of the longest pause (PROTOCOL: doubling to 2 s)."""


class Backoff:
    """Pauses with full jitter: the n-th is anything from 0 to ``min(2 s, 250 ms * 2**n)``."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self._cap = FIRST_S

    def next(self) -> float:
        """[s] The next pause."""
        pause = self._uniform(0.0, self._cap)
        self._cap = min(MOST_S, self._cap * 2)
        return pause

    def reset(self) -> None:
        self._cap = FIRST_S


class Signal:
    """Wakes whoever waits for a condition whenever something that it may depend on has changed."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def fire(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, condition: Callable[[], bool], timeout: float) -> None:
        """Return once ``condition()`` holds. ``TimeoutError`` after ``timeout`` seconds; what it raises
        passes."""
        async with asyncio.timeout(timeout):
            while not condition():
                waiter = asyncio.get_running_loop().create_future()
                self._waiters.add(waiter)
                try:
                    await waiter
                finally:
                    self._waiters.discard(waiter)
