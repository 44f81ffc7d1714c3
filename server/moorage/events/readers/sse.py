"""Reading by Server-Sent Events: what is pushed waits in a queue until the response has taken it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from moorage.events.frames import Frame
from moorage.events.readers.base import SLOW, Limits, Reader

CHUNK_BYTES = 65_536
"""[bytes] Events are given to the network together up to this size, which is what uvicorn buffers."""


class SseReader(Reader):
    """``resumes``: there was a ``Last-Event-ID``. Nothing live is sent before the replay is done, so ids only rise."""

    kind = "sse"
    waits = True

    def __init__(self, session_id: str, limits: Limits, *, resumes: bool) -> None:
        super().__init__(session_id, limits)
        self._resumes = resumes
        self._queue: deque[bytes] = deque()
        self._size = 0
        self._sending = 0
        self._news = asyncio.Event()

    def begin(self, ready: Frame, epoch: str) -> None:
        # Its id is a place to resume from, which a client that resumes has of its own.
        super().begin(Frame(ready.json) if self._resumes or self.begun.is_set() else ready, epoch)

    def write(self, frame: Frame) -> int:
        data = frame.sse(self._epoch)
        self._queue.append(data)
        self._size += len(data)
        self._news.set()
        if self._size > self.limits.max_buffer:
            self.slow()
        return len(data)

    def unsent(self) -> int:
        return self._size + self._sending

    def close(self, code: int) -> None:
        if code == SLOW:
            self._queue.clear()
        self._news.set()

    def end(self, code: int | None) -> None:
        super().end(code)
        self._news.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """What is to be sent; ends with the reader. A chunk counts as unsent until the next one is asked for."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._queue:
                chunk = self._queue.popleft()
                while self._queue and len(chunk) < CHUNK_BYTES:
                    chunk += self._queue.popleft()
                self._size -= len(chunk)
                self._sending = len(chunk)
                yield chunk
                self._sending = 0
            if self.ended:
                return
