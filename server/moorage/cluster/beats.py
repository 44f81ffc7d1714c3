"""When silence is evidence: the clock of beats. Values in, values out; no I/O.

A peer's silence counts only over time in which we could have heard it: our own beats came back (echo) and our
loop turned. Whatever was missed before the last unhealthy moment does not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

TICKS_PER_BEAT = 2
"""The clock is looked at twice per beat; ``next_look`` says when a look must come sooner."""


class Heard(Protocol):
    """A peer; ``heard`` is when it was last heard."""

    heard: float


class BeatClock:
    """Times are seconds of one monotonic clock, given by the caller."""

    def __init__(self, interval_s: float, misses: int) -> None:
        self.interval_s = interval_s
        self.tick_s = interval_s / TICKS_PER_BEAT
        self.limit_s = interval_s * misses
        self._ticked: float | None = None
        self._sent: float | None = None
        self._echoed = 0.0
        self._healthy_since = 0.0

    def unhealthy(self, now: float) -> None:
        """What was not heard until ``now`` proves nothing."""
        self._healthy_since = now
        self._sent = None

    def ticked(self, now: float, *, linked: bool) -> None:
        """The loop turned. A tick late by a whole beat, a link that is down (``linked`` false), or an echo missing
        for a whole beat is unhealthy."""
        late = self._ticked is not None and now - self._ticked > self.tick_s + self.interval_s
        self._ticked = now
        if late or not linked or self._sent is None:
            self.unhealthy(now)
        elif self._echoed < self._sent and now - self._sent > self.interval_s:
            self._healthy_since = now

    def sent(self, now: float) -> None:
        """A beat of ours leaves; one that is still without echo keeps its time."""
        if self._sent is None or self._echoed >= self._sent:
            self._sent = now

    def echoed(self, sent_at: float) -> None:
        """Our own beat, sent at ``sent_at``, came back."""
        self._echoed = max(self._echoed, sent_at)

    def stalled(self, now: float) -> bool:
        """True when the loop stood still for so long that the others must have given us up (one beat early)."""
        return self._ticked is not None and now - self._ticked > self.limit_s - self.interval_s

    def silent(self, heard: float, now: float) -> bool:
        """True when a peer last heard at ``heard`` missed its beats while we were healthy."""
        return now > self._silent_at(heard)

    def next_look(self, peers: Iterable[Heard], now: float) -> float:
        """When the first of ``peers``, if nothing happens, will have missed its beats; a millisecond after
        ``now`` at least."""
        return max(now, min((self._silent_at(peer.heard) for peer in peers), default=float("inf"))) + 0.001

    def _silent_at(self, heard: float) -> float:
        return max(heard, self._healthy_since) + self.limit_s
