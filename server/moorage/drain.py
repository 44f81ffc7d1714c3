"""Leaving without a lost call (PROTOCOL, "Drain").

serving ─ SIGTERM ─> draining: /ready 503, every socket is told, then closed in jittered waves over the window;
a socket with calls under way (as caller or as target) waits for them up to the window's end ─> drained
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Collection
from enum import IntEnum

import structlog

log = structlog.get_logger("moorage.drain")

QUIET_SHARE = 0.25
"""First part of the window in which nobody is closed: our own clients move over by themselves meanwhile."""
QUIET_MAX_S = 2.0
"""… but no longer than this."""
CALLERS_SHARE = 0.5
"""Sockets that call are closed in the last part of the window only: a call that is on its way to us when we close is
lost, and our own callers have moved over long before."""
WAVE_S = 0.05
"""Sockets whose time has come are closed together, this often."""


class DrainState(IntEnum):
    """Values of the metric ``drain_state``."""

    SERVING = 0
    DRAINING = 1
    DRAINED = 2


class Drain:
    """Leads the sockets of this replica away."""

    def __init__(
        self,
        window_s: float,
        sockets: Callable[[], Collection[str]],
        is_busy: Callable[[str], bool],
        calls: Callable[[str], bool],
        tell: Callable[[str, dict[str, int]], object],
        close: Callable[[str], None],
    ) -> None:
        """``sockets``: ids of all connected ones; ``is_busy``: has calls under way; ``calls``: has
        ever called; ``tell(sid, payload)`` sends
        ``server-draining``; ``close`` ends the transport so that the client reconnects by itself."""
        self.window_s = window_s
        self.state = DrainState.SERVING
        self._sockets = sockets
        self._is_busy = is_busy
        self._calls = calls
        self._tell = tell
        self._close = close
        self._end = 0.0
        self._due: dict[str, float] = {}

    @property
    def draining(self) -> bool:
        return self.state is not DrainState.SERVING

    def connected(self, sid: str) -> None:
        """A socket that comes while draining is told at once and gets its own time; after the drain it is led on."""
        if self.state is DrainState.DRAINING:
            self._announce(sid)
        elif self.state is DrainState.DRAINED:
            self._close(sid)

    async def run(self) -> None:
        """Returns when no socket is left or the window is over."""
        start = time.monotonic()
        self._end = start + self.window_s
        self.state = DrainState.DRAINING
        sids = list(self._sockets())
        log.info("draining", sockets=len(sids), window_ms=round(self.window_s * 1000))
        for number, sid in enumerate(sids):
            self._announce(sid)
            if number % 200 == 199:
                await asyncio.sleep(0)
        while (now := time.monotonic()) < self._end and self._sockets():
            for sid in self._sockets_due(now):
                self._close(sid)
            await asyncio.sleep(min(WAVE_S, max(0.0, self._end - now)))
        self.state = DrainState.DRAINED
        left = list(self._sockets())
        log.info("drained", left=len(left), seconds=round(time.monotonic() - start, 3))

    def _announce(self, sid: str) -> None:
        now = time.monotonic()
        left = max(0.0, self._end - now)
        quiet = min(self.window_s * QUIET_SHARE, QUIET_MAX_S, left)
        if self._calls(sid):
            quiet = min(max(quiet, self.window_s * CALLERS_SHARE), left)
        last = max(quiet, left - 2 * WAVE_S)  # the last wave is over before the window is
        self._due[sid] = now + random.uniform(quiet, last)
        self._tell(sid, {"deadlineMs": round((time.time() + left) * 1000)})

    def _sockets_due(self, now: float) -> list[str]:
        present = set(self._sockets())
        self._due = {sid: due for sid, due in self._due.items() if sid in present}
        return [sid for sid, due in self._due.items() if due <= now and not self._is_busy(sid)]
