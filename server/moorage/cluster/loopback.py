"""Own events that come back by the stream, so that all nodes deliver in one order and an offset means all before it.

A slow or absent Redis must not delay delivery to the sockets of this process for longer than :data:`LATE_S`: then
what waits is delivered here, without offsets, and not again when it comes back. The time in which this process itself
stood still (a pod at its CPU limit does, for up to 100 ms at a time) says nothing about Redis.

What acts on the sockets of this process at once, as leaving a room does, waits for :meth:`Loopback.settled` first, so
that it does not overtake what was emitted before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from moorage.cluster import wire
from moorage.cluster.writer import StreamWriter
from moorage.storage.backplane import Backplane

LATE_S = 0.1
"""[s] A round trip takes less than a millisecond; after a hundred something is wrong."""
STOOD_STILL_S = 0.03
"""[s] A timer that is so late tells that this process stood still: what came back meanwhile is yet to be read."""
DIRECT_S = 1.0
"""[s] After that, events are delivered here at once for so long, and as long as the writer holds entries back."""


class Loopback:
    """Events on their way to the stream and back; ``deliver`` of each is called at most once."""

    def __init__(self, backplane: Backplane, writer: StreamWriter, comes_back: Callable[[str], bool]) -> None:
        """``comes_back(stream)``: what is appended now will be read here."""
        self._backplane, self._writer, self._comes_back = backplane, writer, comes_back
        self._waiting: dict[bytes, tuple[float, Callable[[], None]]] = {}
        self._count = 0
        self._fences: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._direct_until = 0.0
        self._running = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """What is sent from now on comes back."""
        self._running = True

    def send(self, stream: str, fields: list[bytes | str], deliver: Callable[[], None]) -> None:
        """Append ``fields``; ``deliver`` is the way out when they do not come back in time."""
        loop = asyncio.get_running_loop()
        stalled = loop.time() < self._direct_until and self._writer.pending
        ready = self._running and self._backplane.available and self._comes_back(stream)
        if stalled or not ready:
            self._flush()
            deliver()
            self._writer.append(stream, fields)
            return
        self._count += 1
        tag = b"%d" % self._count
        self._waiting[tag] = (loop.time() + LATE_S, deliver)
        self._writer.append(stream, [*fields, wire.TAG_FIELD, tag])
        if self._timer is None:
            self._timer = loop.call_later(LATE_S, self._look)

    def returned(self, tag: bytes) -> bool:
        """An own entry was read back. True: it is to be delivered now, in this turn of the loop."""
        known = self._waiting.pop(tag, None) is not None
        if self._fences:
            self._release()
        return known

    async def settled(self) -> None:
        """What was sent before is delivered here. Waits no longer than that does, and not at all with nothing out."""
        if self._waiting:
            fence: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._fences.append((self._count, fence))
            await fence

    def _release(self) -> None:
        oldest = int(next(iter(self._waiting), b"%d" % (self._count + 1)))
        while self._fences and self._fences[0][0] < oldest:
            _, fence = self._fences.popleft()
            if not fence.done():
                fence.set_result(None)

    def stop(self) -> None:
        """Deliver what is still out, and from now on at once."""
        self._running = False
        self._flush()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        timer, self._timer = self._timer, None
        if timer is None or not self._waiting:
            return
        loop = asyncio.get_running_loop()
        now, due = loop.time(), next(iter(self._waiting.values()))[0]
        if due > now:
            self._timer = loop.call_at(due, self._look)
        elif now - timer.when() > STOOD_STILL_S and now < due + DIRECT_S:
            self._timer = loop.call_at(now + LATE_S, self._look)
        else:
            self._direct_until = now + DIRECT_S
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for _, deliver in waiting.values():
            deliver()
        self._release()
