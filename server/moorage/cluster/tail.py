"""The last part of a stream, read once for all clients that come back at about the same time.

After a deploy or a crash thousands of clients return within a second, each with another offset, most of them with
an old one: they had long got nothing. Read for each of them, a stream of 200,000 entries would cost each of them
most of a second. So what one needed is kept for a moment, by room.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Collection
from typing import Any

from moorage.cluster import wire
from moorage.cluster.changes import Change
from moorage.cluster.sessions import Marker, Told
from moorage.cluster.writer import StreamId, parse_id
from moorage.storage.backplane import Backplane

PAGE_MAX = 1000
"""Entries per command and per block; some milliseconds of work, after which others get their turn."""
PAGE_FIRST = 32
PAGE_BYTES = 4 * 1024 * 1024
"""What a page should have at most, whatever the entries' size: Redis cuts a client off whose reply is too large."""
KEPT_MAX_BYTES = 64 * 1024 * 1024
"""Of entries as they are in Redis; the oldest are let go, and are read again for the one that needs them."""
KEPT_S = 10.0
"""How long it is kept after its last use."""

_END = b"%d-%d" % (2**64 - 1, 2**64 - 1)

_READ = (wire.BROADCAST, wire.MARKER, wire.SOCKETS_JOIN, wire.SOCKETS_LEAVE)

Missed = list[tuple[bytes, wire.Broadcast]]


class PageSize:
    """How many entries to ask for: few at first, then as many as make a page of the wanted size."""

    def __init__(self) -> None:
        self.count = PAGE_FIRST

    def got(self, size: int) -> None:
        """The last page had so many bytes."""
        fitting = self.count * PAGE_BYTES // max(1, size)
        self.count = max(1, min(fitting, 4 * self.count, PAGE_MAX))


def size_of(fields: list[bytes] | None) -> int:
    """Bytes of an entry, about."""
    return 200 + sum(map(len, fields or ()))


class _Block:
    """Neighbouring entries, and which rooms they are for. Ids from ``after`` (exclusive) to ``last``."""

    __slots__ = ("after", "by_room", "changes", "entries", "last", "size", "told")

    def __init__(self, after: bytes, last: bytes) -> None:
        self.after, self.last = parse_id(after), parse_id(last)
        self.entries: list[tuple[StreamId, bytes, wire.Broadcast]] = []
        self.by_room: dict[tuple[str, str | None], list[int]] = {}
        self.told: dict[str, list[tuple[str, Told]]] = {}
        self.changes: dict[str, list[Change]] = {}
        self.size = 0

    def add(self, entry_id: bytes, fields: list[bytes] | None) -> None:
        self.size += size_of(fields)
        message = wire.decode_entry(fields)
        if isinstance(message, wire.Malformed) or message.type not in _READ:
            return
        body = message.body()
        if isinstance(body, wire.SocketsRooms):
            joins = message.type == wire.SOCKETS_JOIN
            change = Change(parse_id(entry_id), joins, body.opts, body.room_names)
            self.changes.setdefault(message.nsp, []).append(change)
        if isinstance(body, Marker):
            for sid, told in body.sockets.items():
                self.told.setdefault(sid, []).append((body.node, told))
        if not isinstance(body, wire.Broadcast) or not body.is_recoverable:
            return
        number = len(self.entries)
        self.entries.append((parse_id(entry_id), entry_id, body))
        for room in body.opts.room_names or (None,):
            self.by_room.setdefault((message.nsp, room), []).append(number)

    def find(self, namespace: str, mine: Collection[str], after: StreamId, until: StreamId) -> Missed:
        numbers: set[int] = set(self.by_room.get((namespace, None), ()))
        for room in mine:
            numbers.update(self.by_room.get((namespace, room), ()))
        found = []
        for number in sorted(numbers):
            at, entry_id, body = self.entries[number]
            if after < at <= until and not (body.opts.except_ and set(mine) & set(body.opts.except_names)):
                found.append((entry_id, body))
        return found


class Tail:
    """Of one stream."""

    def __init__(self, backplane: Backplane, stream: str) -> None:
        self._backplane, self._stream = backplane, stream
        self._blocks: deque[_Block] = deque()
        self._filling = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None

    async def missed(
        self, namespace: str, mine: Collection[str], after: bytes, until: bytes
    ) -> AsyncIterator[Missed]:
        """Recoverable broadcasts to ``mine`` (rooms and sid) behind ``after`` and not behind ``until``, in order,
        in parts that may be empty. Raises :class:`BackplaneError`."""
        first, last = parse_id(after), parse_id(until)
        async with self._filling:
            await self._fill(after, until)
            kept = [block for block in self._blocks if block.last > first]
        if kept and kept[0].after > first:  # more than is kept
            async for block in self._read(after, b"%d-%d" % kept[0].after):
                yield block.find(namespace, mine, first, last)
        for block in kept:
            yield block.find(namespace, mine, first, last)

    async def told(self, sid: str, after: bytes) -> list[tuple[str, Told]]:
        """What markers behind ``after`` tell of a socket: node and content. Raises :class:`BackplaneError`."""
        found: list[tuple[str, Told]] = []
        async for block in self._behind(after):
            found += block.told.get(sid, ())
        return found

    async def changes(self, namespace: str, after: StreamId) -> list[Change]:
        """Rooms that sockets were made to join or leave behind ``after``. Raises :class:`BackplaneError`."""
        found: list[Change] = []
        async for block in self._behind(b"%d-%d" % after):
            found += (
                change for change in block.changes.get(namespace, ()) if change.at and change.at > after
            )
        return found

    async def _behind(self, after: bytes) -> AsyncIterator[_Block]:
        async with self._filling:
            await self._fill(after, _END)
            kept = [block for block in self._blocks if block.last > parse_id(after)]
        if kept and kept[0].after > parse_id(after):
            async for block in self._read(after, b"%d-%d" % kept[0].after):
                yield block
        for block in kept:
            yield block

    async def _fill(self, after: bytes, until: bytes) -> None:
        self._keep()
        if self._blocks and self._blocks[0].after > parse_id(after):
            older = [block async for block in self._read(after, b"%d-%d" % self._blocks[0].after)]
            self._blocks.extendleft(reversed(older))
        start = b"%d-%d" % self._blocks[-1].last if self._blocks else after
        async for block in self._read(start, until):
            self._blocks.append(block)
            self._let_go()
        self._let_go()

    def _let_go(self) -> None:
        total = sum(block.size for block in self._blocks)
        while len(self._blocks) > 1 and total > KEPT_MAX_BYTES:
            total -= self._blocks.popleft().size

    async def _read(self, after: bytes, until: bytes) -> AsyncIterator[_Block]:
        end, asked = parse_id(until), PageSize()
        while parse_id(after) < end:
            count = asked.count
            page: list[Any] = await self._backplane.command(
                "XRANGE", self._stream, b"(" + after, until, "COUNT", count
            )
            if not page:
                return
            block = _Block(after, page[-1][0])
            for entry_id, fields in page:
                block.add(entry_id, fields)
            yield block
            await asyncio.sleep(0)
            if len(page) < count:
                return
            asked.got(block.size)
            after = page[-1][0]

    def _keep(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(KEPT_S, self.drop)

    def drop(self) -> None:
        """Keep nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._blocks.clear()
