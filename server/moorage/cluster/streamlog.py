"""The cluster stream as recovery reads it: pages of the past, and what earlier markers told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

from moorage.cluster import wire
from moorage.cluster.changes import Change
from moorage.cluster.pids import Pid
from moorage.cluster.sessions import Marker, Sessions, Told
from moorage.cluster.stream import StreamReader
from moorage.cluster.tail import Missed, PageSize, Tail, size_of
from moorage.cluster.writer import StreamId, parse_id
from moorage.errors import BackplaneReply
from moorage.storage.backplane import Backplane


class StreamLog:
    """:class:`~moorage.cluster.recovery.Log` over Redis. ``stream_of(namespace)``: the stream that carries it."""

    def __init__(
        self,
        backplane: Backplane,
        reader: StreamReader,
        stream_of: Callable[[str], str],
        *,
        window_s: float,
        limit: int,
    ) -> None:
        """``limit``: entries that are read at most to learn of the past."""
        self._backplane, self._reader, self._stream_of = backplane, reader, stream_of
        self._window_s, self._limit = window_s, limit
        self._sessions: dict[str, Sessions] = {}
        self._tails: dict[str, Tail] = {}
        self._learning = asyncio.Lock()

    def sessions(self, namespace: str) -> Sessions:
        """What is known of the sockets of a namespace."""
        stream = self._stream_of(namespace)
        sessions = self._sessions.get(stream)
        if sessions is None:
            sessions = self._sessions[stream] = Sessions(self._window_s)
        if sessions.since is None:
            sessions.since = self._reader.origin(stream)
        return sessions

    def position(self, namespace: str) -> bytes:
        """The last entry that was delivered here."""
        return self._reader.position(self._stream_of(namespace))

    async def placed(self, namespace: str) -> bool:
        """See :meth:`StreamReader.placed_in`."""
        return await self._reader.placed_in(self._stream_of(namespace))

    async def holds(self, namespace: str, offset: bytes) -> bool:
        """True if the entry ``offset`` is there, so nothing behind it was trimmed; ``0-0``: nothing ever was."""
        stream = self._stream_of(namespace)
        if parse_id(offset) != (0, 0):
            return bool(await self._backplane.command("XRANGE", stream, offset, offset))
        try:
            info = await self._backplane.command("XINFO", "STREAM", stream)
        except BackplaneReply as error:
            if "no such key" in str(error):
                return True
            raise
        fields = dict(zip(info[::2], info[1::2], strict=True))
        return bool(fields[b"length"] == fields.get(b"entries-added"))

    def missed(
        self, namespace: str, mine: Collection[str], after: bytes, until: bytes
    ) -> AsyncIterator[Missed]:
        """See :meth:`Tail.missed`."""
        return self._tail(namespace).missed(namespace, mine, after, until)

    async def told(self, namespace: str, sid: str, after: bytes) -> list[tuple[str, Told]]:
        """See :meth:`Tail.told`."""
        return await self._tail(namespace).told(sid, after)

    async def changes(self, namespace: str, after: StreamId) -> list[Change]:
        """See :meth:`Tail.changes`."""
        return await self._tail(namespace).changes(namespace, after)

    def _tail(self, namespace: str) -> Tail:
        stream = self._stream_of(namespace)
        tail = self._tails.get(stream)
        if tail is None:
            tail = self._tails[stream] = Tail(self._backplane, stream)
        return tail

    def stop(self) -> None:
        """Keep nothing any more."""
        for tail in self._tails.values():
            tail.drop()

    async def learn(self, namespace: str, pid: Pid) -> None:
        """Read markers backwards until all of ``pid`` is known, or as far as there are entries."""
        async with self._learning:
            sessions = self.sessions(namespace)
            stream, left, asked = self._stream_of(namespace), self._limit, PageSize()
            while left > 0 and sessions.since is not None:
                if sessions.knows(pid.sid, pid.node, pid.start, int(time.time() * 1000)):
                    return
                page: list[Any] = await self._backplane.command(
                    "XREVRANGE", stream, sessions.since, "-", "COUNT", asked.count
                )
                for _, fields in page:
                    message = wire.decode_entry(fields)
                    if isinstance(message, wire.Message) and message.type == wire.MARKER:
                        body = message.body()
                        if isinstance(body, Marker):
                            sessions.read(body)
                if page:
                    sessions.since = _before(page[-1][0])
                if len(page) < asked.count:
                    if await self.holds(namespace, b"0-0"):
                        sessions.since = b"0-0"
                    return
                left -= len(page)
                asked.got(sum(size_of(fields) for _, fields in page))
                await asyncio.sleep(0)


def _before(entry_id: bytes) -> bytes:
    """The largest id that is smaller; ``0-0`` has none."""
    ms, number = parse_id(entry_id)
    return b"%d-%d" % ((ms, number - 1) if number else (ms - 1, 2**64 - 1) if ms else (0, 0))
