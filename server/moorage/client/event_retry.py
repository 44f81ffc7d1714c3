"""When a lost stream is opened again (PROTOCOL, "Event log frames": close codes, and "Clients")."""

from __future__ import annotations

import random
from collections.abc import Callable

FIRST_S = 0.8
"""[s] Pause before the first try; it doubles (PROTOCOL: 800 ms)."""

MOST_S = 8.0
"""[s] Longest pause (PROTOCOL: 8 s)."""

TRIES = 5
"""Tries in a row without success before the stream has failed (PROTOCOL)."""

SPREAD = 0.25
"""A pause is anything between 75 and 125 % of its length, so that clients that were cut together come back
one after the other."""

AT_ONCE_S = 0.25
"""[s] Upper end of the pause after a replica said goodbye; a fleet's clients all start at that moment."""

GOODBYES = frozenset({1001, 1012})
"""Drain or restart: connect anew at once, and it is not one of the tries."""

ON_PURPOSE = 1000
"""The server ended the stream: nothing is tried."""

REFUSALS = {4401: "Invalid token", 4404: "Session not found"}
"""Close codes after which no try can succeed, and what they mean."""


class Tries:
    """Counts tries and gives the pause before each."""

    def __init__(self, uniform: Callable[[float, float], float] = random.uniform) -> None:
        self._uniform = uniform
        self.reset()

    def reset(self) -> None:
        """The stream lives (again)."""
        self.used = 0
        self._goodbyes = 0

    def pause(self, code: int | None) -> float | None:
        """[s] The pause after a connection that ended with ``code`` (None: without one); None: give up."""
        if code in GOODBYES:
            # A server that says goodbye to every connection must not be asked in a tight loop.
            longest = min(MOST_S, AT_ONCE_S * (1 << min(self._goodbyes, 10)))
            self._goodbyes += 1
            return self._uniform(0.0, longest)
        if self.used == TRIES:
            return None
        pause = min(MOST_S, FIRST_S * (1 << self.used))
        self.used += 1
        return pause * self._uniform(1 - SPREAD, 1 + SPREAD)
