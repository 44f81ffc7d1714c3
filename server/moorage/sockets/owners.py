"""Whose a session is, asked by a thousand readers that come back at once.

What was found is remembered for a while. That is safe for readers: a log that was deleted says so itself. Who is about
to write asks the state.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from moorage.errors import BackplaneUnavailable
from moorage.storage.state import State

KEEP_S = 60.0
"""[s] A yes is remembered this long: readers that are cut off come back within seconds."""

KEEP_MAX = 20_000
"""Remembered sessions; with some 300 bytes each, more than the readers of one replica need."""

LOOK_UPS_MAX = 12
"""Look-ups at the same time. More would only wait for a connection of the state's pool, which has 16, and be refused
when that takes long; here they wait in order."""

BOUND_S = 8.0
"""[s] From the question to the answer, including the wait for one's turn."""


class Owners:
    """``now`` gives seconds that only rise."""

    def __init__(self, state: State, now: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._now = now
        self._known: OrderedDict[str, tuple[str, float]] = OrderedDict()  # session → (account, until)
        self._running: dict[tuple[str, str], asyncio.Task[bool]] = {}
        self._turns = asyncio.Semaphore(LOOK_UPS_MAX)

    async def owns(self, account: str, session_id: str) -> bool:
        """Whether the session is the account's. Raises BackplaneError."""
        known = self._known.get(session_id)
        if known is not None and known[0] == account and self._now() < known[1]:
            return True
        key = (account, session_id)
        task = self._running.get(key)
        if task is None:
            task = self._running[key] = asyncio.get_running_loop().create_task(self._look_up(key))
        try:
            async with asyncio.timeout(BOUND_S):
                return await asyncio.shield(task)
        except TimeoutError:
            raise BackplaneUnavailable("looking up a session took too long") from None

    def forget(self, session_id: str) -> None:
        """It was deleted."""
        self._known.pop(session_id, None)

    async def _look_up(self, key: tuple[str, str]) -> bool:
        try:
            async with self._turns:
                found = await self._state.get_session(*key) is not None
        finally:
            del self._running[key]
        if found:
            account, session_id = key
            self._known[session_id] = (account, self._now() + KEEP_S)
            self._known.move_to_end(session_id)
            if len(self._known) > KEEP_MAX:
                self._known.popitem(last=False)
        return found
