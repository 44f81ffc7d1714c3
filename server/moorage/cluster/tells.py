"""What a replica tells all others: numbered, batched by the loop tick, and who waits until it was applied. No I/O."""

from __future__ import annotations

import asyncio
import heapq
from typing import Any


class Tells:
    """``number`` is that of the last tell; a tell is all that was added between two :meth:`take`."""

    def __init__(self) -> None:
        self.number = 0
        self._items: list[Any] = []
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waits = 0

    def add(self, item: Any) -> int:
        """Returns the number of the tell that will carry ``item``."""
        if not self._items:
            self.number += 1
        self._items.append(item)
        return self.number

    def take(self) -> list[Any]:
        """The items of tell ``number``; empty: nothing new."""
        items, self._items = self._items, []
        return items

    def applied(self, number: int) -> asyncio.Future[None]:
        """Done at the first :meth:`wake` that covers ``number``."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits += 1
        heapq.heappush(self._waiting, (number, self._waits, waiter))
        return waiter

    def wake(self, number: float) -> None:
        """Everybody has applied all tells up to ``number``. Costs what it wakes."""
        while self._waiting and self._waiting[0][0] <= number:
            waiter = heapq.heappop(self._waiting)[2]
            if not waiter.done():
                waiter.set_result(None)
