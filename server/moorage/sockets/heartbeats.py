"""When clients are due for a ping, or for having not answered one: one timer for all of them.

A timer of its own costs each client 0.6 kB and the process a wake-up per ping.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import Protocol

from moorage.ticks import next_tick, tick_number

logger = logging.getLogger(__name__)

SLOT_MAX_S = 0.1
"""[s] By which a client may be late at most."""
SLOTS_PER_INTERVAL = 15
"""A shorter ping interval has shorter slots."""


class Beating(Protocol):
    """Who waits for its time."""

    def due(self) -> None: ...


class Heartbeats:
    """Calls :meth:`Beating.due` once, at its time or up to a slot later. ``interval_s``: the shortest wait."""

    def __init__(self, interval_s: float) -> None:
        self._slot_s = min(SLOT_MAX_S, interval_s / SLOTS_PER_INTERVAL)
        self._slots: dict[int, set[Beating]] = {}
        self._next = 0  # no slot before this one is left
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._slots.values()))

    def wait(self, who: Beating, delay_s: float) -> int:
        """``who`` is due in ``delay_s``; what is returned is for :meth:`forget`."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._timer is None:
            self._next = tick_number(self._slot_s, now)
            self._timer = loop.call_at(next_tick(self._slot_s, now), self._tick)
        slot = max(self._next, math.ceil((now + delay_s) / self._slot_s))
        waiting = self._slots.get(slot)
        if waiting is None:
            waiting = self._slots[slot] = set()
        waiting.add(who)
        return slot

    def forget(self, who: Beating, slot: int) -> None:
        """It is not due any more."""
        waiting = self._slots.get(slot)
        if waiting is not None:
            waiting.discard(who)
            if not waiting:
                del self._slots[slot]

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        last = tick_number(self._slot_s, now)
        over, self._next = range(self._next, last + 1), last + 1
        for slot in over:
            for who in self._slots.pop(slot, ()):
                try:
                    who.due()
                except Exception:
                    logger.exception("a heartbeat failed")
        self._timer = loop.call_at(next_tick(self._slot_s, now), self._tick) if self._slots else None
