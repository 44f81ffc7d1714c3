"""The handler that the bench runs in `moorage worker`: reports as fast as the log takes them, or one after another."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import moorage

MODULE = "moorage_chaos.bench.reports"
STEPS = 20


@moorage.task("bench-reports")
async def reports(task: moorage.Task, input: Any) -> Any:
    """``{"seconds", "pauseMs"?}``: report until the time is over, each when the one before is in the log.

    Each carries ``t``, CLOCK_MONOTONIC in ns. The result is ``{"count", "appendMs"}``: how long the appends took,
    sorted and thinned out to twenty quantiles.
    """
    took: list[int] = []
    end = time.monotonic_ns() + int(input["seconds"] * 1e9)
    pause = input.get("pauseMs", 0) / 1000
    while (t := time.monotonic_ns()) < end:
        await task.report("item", {"t": t})
        took.append(time.monotonic_ns() - t)
        if pause:
            await asyncio.sleep(pause)
    took.sort()
    places = [took[min(len(took) - 1, i * len(took) // STEPS)] / 1e6 for i in range(STEPS)] if took else []
    return {"count": len(took), "appendMs": places}
