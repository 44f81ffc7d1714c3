"""When the log is asked and when it is left alone. No I/O, no clock (PROTOCOL, "Event log frames": breaker).

closed ─ FAILURES_MAX failures in a row ─> open ─ probe_after_s, or the subscription is back ─> probing
probing ─ success ─> closed; probing ─ failure ─> open
"""

from __future__ import annotations

from enum import IntEnum

FAILURES_MAX = 3
"""Failures in a row that open it (PROTOCOL)."""

PROBE_AFTER_S = 30.0
"""[s] A probe comes this long after it opened, or earlier (PROTOCOL)."""


class BreakerState(IntEnum):
    """Values of the metric ``event_log_breaker_state``."""

    CLOSED = 0
    OPEN = 1
    PROBING = 2


class Breaker:
    """Counts failures; says who may append."""

    def __init__(self) -> None:
        self.state = BreakerState.CLOSED
        self._failures = 0

    @property
    def closed(self) -> bool:
        """Appends go to the log."""
        return self.state is BreakerState.CLOSED

    def failure(self) -> bool:
        """An append failed. True: it has opened now."""
        self._failures += 1
        if self.state is BreakerState.OPEN or (self.closed and self._failures < FAILURES_MAX):
            return False
        self.state = BreakerState.OPEN
        return True

    def success(self) -> bool:
        """An append succeeded. True: it has closed now."""
        self._failures = 0
        was, self.state = self.state, BreakerState.CLOSED
        return was is not BreakerState.CLOSED

    def probe(self) -> bool:
        """It is time for a probe. False: none is needed, or one is under way."""
        if self.state is not BreakerState.OPEN:
            return False
        self.state = BreakerState.PROBING
        return True
