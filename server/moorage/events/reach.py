"""Waiting for Redis, however many wait: one look at a time for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LOOK_S = 0.02
"""[s] Between two looks: whether a reply is overdue is a matter of time, so nobody is told when it changes."""


class Reach:
    """``available()``: Redis can be reached."""

    def __init__(self, available: Callable[[], bool]) -> None:
        self._available = available
        self._looking: asyncio.Task[None] | None = None

    async def __call__(self) -> None:
        """Returns when Redis can be reached; give it a bound of your own."""
        if self._available():
            return
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        try:
            while not self._available():  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
        finally:
            self._looking = None

    def stop(self) -> None:
        """Nobody is waited for any more."""
        if self._looking is not None:
            self._looking.cancel()
