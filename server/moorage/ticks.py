"""Periodic looks that share their moments: waking a process costs several times what it then does.

Everything that looks at something at a fixed distance does so at multiples of that distance on the loop's clock, so
that looks of 100 ms, 200 ms and 1 s fall into the same turn of the loop.
"""

from __future__ import annotations

import asyncio
import math

_EARLY = 0.1
"""Share of a period by which a timer may be early (clocks are rounded to milliseconds) and still count as that tick."""


def tick_number(period_s: float, now: float) -> int:
    """Number of the last tick at ``now``, a time of the loop's clock."""
    return math.floor(now / period_s + _EARLY)


def next_tick(period_s: float, now: float) -> float:
    """The next multiple of ``period_s`` after ``now``, for ``loop.call_at``."""
    return (tick_number(period_s, now) + 1) * period_s


async def sleep_to_tick(period_s: float) -> None:
    """Until the next multiple of ``period_s``."""
    now = asyncio.get_running_loop().time()
    await asyncio.sleep(next_tick(period_s, now) - now)
