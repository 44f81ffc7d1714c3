"""The harness measures its own event loop, so that it never blames a server for its own slowness."""

from __future__ import annotations

import asyncio
import time

from moorage_chaos.history import History

STEP_S = 0.005
"""A sleep this long is repeated; what it takes longer is lag. 200 wake-ups a second cost about 0.3 % of a
core.
"""

WORTH_NOTING_MS = 4.0
"""Smaller lags are not written down: no promise has a bar near them."""


class LagMeter:
    """Writes a ``lag`` note for every moment in which the loop did not turn."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            before = time.monotonic_ns()
            await asyncio.sleep(STEP_S)
            now = time.monotonic_ns()
            late = (now - before) / 1e6 - STEP_S * 1000
            if late >= WORTH_NOTING_MS:
                self._history.note("lag", t=now, ms=round(late, 3))
