"""What a reader has received and its consumer has not taken yet, with the checkpoint that each part stands for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from moorage.client.event_frames import Checkpoint, Event
from moorage.client.event_ledger import Rebuilt

Item = Event | Rebuilt


class Mailbox:
    """Adding never waits; a reader that waits for :meth:`room` before it reads on keeps it bounded."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._entries: deque[tuple[Item | None, Checkpoint | None]] = deque()
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._ended = False

    def add(self, items: Sequence[Item], checkpoint: Checkpoint | None) -> None:
        """Once all of ``items`` (none is allowed) have been dealt with, ``checkpoint`` is where we are."""
        if items:
            self._entries.extend((item, None) for item in items[:-1])
            self._entries.append((items[-1], checkpoint))
        elif self._entries and self._entries[-1][0] is None:
            self._entries[-1] = (None, checkpoint)
        else:
            self._entries.append((None, checkpoint))
        self._filled.set()
        if len(self._entries) >= self._size:
            self._drained.clear()

    async def room(self) -> None:
        """Returns when fewer than ``size`` entries are left."""
        await self._drained.wait()

    def end(self) -> None:
        """Nothing comes any more: :meth:`take` returns None after what is left."""
        self._ended = True
        self._filled.set()

    def reopen(self) -> None:
        self._ended = False

    async def take(self) -> tuple[Item | None, Checkpoint | None] | None:
        """The next entry; None: ended."""
        while not self._entries:
            if self._ended:
                return None
            self._filled.clear()
            await self._filled.wait()
        entry = self._entries.popleft()
        if len(self._entries) < self._size:
            self._drained.set()
        return entry
