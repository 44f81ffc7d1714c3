"""``fetch_sockets`` asked by a node that has no sockets: how long the answers of all replicas take.

The node is our manager in this process, whoever the replicas are, so what differs is how they answer.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moorage.cluster import RedisStreamsManager
from moorage_chaos.bench.client import BenchError
from moorage_chaos.bench.processes import Process

PAUSE_S = 0.002
"""[s] Between two questions."""
TIMEOUT_MS = 5000
"""[ms] Bound of one question; Node's default."""
IN_HAND_S = 0.1
"""[s] After which a question is surely with every replica; Redis needs less than a millisecond."""


class Asker:
    """Asks for the sockets of ``room``, of which there must be ``expected``. Build with :func:`asker`."""

    def __init__(self, manager: RedisStreamsManager, room: str, expected: int) -> None:
        self._manager, self._room, self._expected = manager, room, expected

    async def ask(self) -> tuple[int, bool]:
        """``(number of sockets, whether everybody answered)``."""
        sockets, complete = await self._manager.requests.fetch_sockets([self._room], timeout_ms=TIMEOUT_MS)
        return len(sockets), complete

    async def run(self, seconds: float) -> list[float]:
        """Ask again and again; the time of each [s]. Raises :class:`BenchError` for an answer that is not whole."""
        latencies = []
        until = time.perf_counter() + seconds
        while (started := time.perf_counter()) < until:
            found = await self.ask()
            latencies.append(time.perf_counter() - started)
            if found != (self._expected, True):
                raise BenchError(f"fetch_sockets gave {found}, not {self._expected} sockets of everybody")
            await asyncio.sleep(PAUSE_S)
        return latencies

    async def ask_while_dying(self, victim: Process) -> float:
        """[s] From the SIGKILL of a replica that has a question in hand to the result, which must say it is partial.

        Raises :class:`BenchError`.
        """
        os.kill(victim.pid, signal.SIGSTOP)
        asking = asyncio.create_task(self.ask())
        await asyncio.sleep(IN_HAND_S)
        if asking.done():
            raise BenchError("a question was answered for a replica that stands still")
        started = time.perf_counter()
        victim.stop(gently=False)
        count, complete = await asking
        spent = time.perf_counter() - started
        if complete or not 0 < count < self._expected:
            raise BenchError(f"a dead replica's part was not left out: {count} sockets, complete: {complete}")
        return spent


@asynccontextmanager
async def asker(url: str, room: str, expected: int) -> AsyncIterator[Asker]:
    """A node of the cluster at ``url`` for as long as this lasts. Raises :class:`BenchError`."""
    manager = RedisStreamsManager(url)
    try:
        if not await manager.start():
            raise BenchError("the asking node could not join the cluster")
        yield Asker(manager, room, expected)
    finally:
        await manager.stop()
