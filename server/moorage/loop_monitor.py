"""Does the event loop turn? One timer; what it sees is what ``/ready`` says about the loop."""

from __future__ import annotations

import asyncio
import time

from moorage.ticks import next_tick

TICK_S = 0.1
STALL_S = 1.0
"""A loop that stood still this long answered nobody meanwhile; a probe's timeout is of the same size."""
MEMORY_S = 2.0
"""How long a stall is remembered: one period of the readiness probe, so that it sees it."""


class LoopMonitor:
    """``stalled``: the loop stood still for :data:`STALL_S` within the last :data:`MEMORY_S`."""

    def __init__(self) -> None:
        self._ticked = 0.0
        self._stalled_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._ticked = time.monotonic()
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked > STALL_S:
            self._stalled_at = now
        self._ticked = now
        self._wait()

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(next_tick(TICK_S, loop.time()), self._tick)

    @property
    def stalled(self) -> bool:
        now = time.monotonic()
        return now - self._ticked > STALL_S or now - self._stalled_at < MEMORY_S
