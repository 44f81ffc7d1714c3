"""When operations begin: schedules as plain lists of offsets, and one way to play them.

Open loop: an operation begins at its time whether or not those before it have ended, so a slow answer never
hides the load it should have met.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable


def every(period_ms: float, duration_ms: float, *, first_ms: float = 0.0) -> list[float]:
    """Offsets in seconds: one each ``period_ms`` from ``first_ms`` while it is below ``duration_ms``."""
    if period_ms <= 0:
        raise ValueError("period_ms must be positive")
    count = max(0, -int(-(duration_ms - first_ms) // period_ms))
    return [(first_ms + i * period_ms) / 1000 for i in range(count)]


def at(*offsets_ms: float) -> list[float]:
    """Offsets in seconds from milliseconds."""
    return sorted(ms / 1000 for ms in offsets_ms)


def jittered(offsets: Iterable[float], spread_ms: float, rng: random.Random) -> list[float]:
    """Each offset moved later by 0..``spread_ms``, order kept by time."""
    return sorted(offset + rng.uniform(0, spread_ms) / 1000 for offset in offsets)


async def play(
    offsets: Iterable[float],
    start: Callable[[int], Awaitable[None]],
    *,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """Begin ``start(i)`` at the i-th offset from now, each in a task of its own; return when all have ended.

    ``until``: no more are begun once it says True. What ``start`` raises ends the play.
    """
    loop = asyncio.get_running_loop()
    zero = loop.time()
    async with asyncio.TaskGroup() as group:
        for i, offset in enumerate(offsets):
            # Also when we are late: those that were begun must get their turn.
            await asyncio.sleep(max(0.0, zero + offset - loop.time()))
            if until():
                break
            group.create_task(_run(start, i))


async def _run(start: Callable[[int], Awaitable[None]], i: int) -> None:
    await start(i)
