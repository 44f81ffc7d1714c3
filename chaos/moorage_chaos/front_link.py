"""One link of the front: its mode, its spliced connections, and how bytes pass.

A connection is a :class:`Splice` of two :class:`Side`: the one that was accepted and the one to the target.
In mode ``open`` a chunk is written on at once. ``freeze`` stops reading; ``blackhole`` reads and drops, and
also swallows the end of a connection, so the other side is not told (half-open); ``slow`` queues chunks
until they are due.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, cast

Mode = Literal["open", "refuse", "freeze", "blackhole", "slow"]
Direction = Literal["up", "down"]
RST = struct.pack("ii", 1, 0)
"""SO_LINGER on, 0 s: closing sends RST instead of FIN."""
MAX_QUEUED_BYTES = 1 << 20
"""Queued in one direction of one slow connection before its sender is no longer read."""


class Link:
    """A named way from clients to one target."""

    def __init__(self, name: str, target: tuple[str, int]) -> None:
        self.name = name
        self.target = target
        self.port = 0
        self.mode: Mode = "open"
        self.direction: Literal["both", "up", "down"] = "both"
        self.delay_s = 0.0
        self.bytes_per_s = 0
        self.accepted = 0
        self.splices: set[Splice] = set()
        self.passable = asyncio.Event()
        """Set while a new connection may be made to the target."""
        self.passable.set()

    def apply(self, do: str, fields: dict[str, Any]) -> None:
        """Raises ValueError for an unknown fault."""
        if do == "cut":
            for splice in list(self.splices):
                splice.reset()
            return
        if do not in ("refuse", "freeze", "blackhole", "slow", "heal"):
            raise ValueError(f"unknown fault {do!r}")
        self.mode = "open" if do == "heal" else cast(Mode, do)
        self.direction = fields.get("direction", "both") if do == "blackhole" else "both"
        self.delay_s = float(fields.get("delay_ms", 0)) / 1000 if do == "slow" else 0.0
        self.bytes_per_s = int(fields.get("bytes_per_s", 0)) if do == "slow" else 0
        stuck = self.mode in ("freeze", "blackhole")
        for splice in list(self.splices):
            if splice.lost and not stuck:
                splice.reset()
            else:
                splice.changed()
        (self.passable.clear if stuck else self.passable.set)()

    @property
    def prompt(self) -> bool:
        """Chunks are written on as they come."""
        return self.mode not in ("slow", "freeze")

    def swallows(self, direction: Direction) -> bool:
        return self.mode == "blackhole" and self.direction in ("both", direction)


class Side(asyncio.Protocol):
    """One of the two sockets of a splice."""

    def __init__(self, accepted: Callable[[Side], None] | None = None, pinned: Link | None = None) -> None:
        self.pinned = pinned
        self.splice: Splice | None = None
        self.gone = False
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._accepted = accepted
        self._early = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self._accepted is not None:
            self._accepted(self)
        elif self.splice is not None:
            self.splice.joined(self)

    def data_received(self, data: bytes) -> None:
        splice = self.splice
        if splice is None or splice.server is None:
            # The target is not connected yet; what a client may send before that is one handshake.
            self._early += data
            if splice is not None and splice.link.swallows("up"):
                self._early.clear()
                splice.lost = True
            elif len(self._early) > MAX_QUEUED_BYTES:
                self.transport.pause_reading()
            return
        splice.pass_on(self, data)

    def take_early(self) -> bytes:
        early, self._early = bytes(self._early), bytearray()
        return early

    def pause_writing(self) -> None:
        if self.splice is not None:
            self.splice.full(self, True)

    def resume_writing(self) -> None:
        if self.splice is not None:
            self.splice.full(self, False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        if self.splice is not None:
            self.splice.side_lost(self, reset=exc is not None)

    def reset(self) -> None:
        """Close with RST."""
        if self.transport is None or self.gone:
            return
        sock = self.transport.get_extra_info("socket")
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RST)
        except OSError:  # the peer was faster
            pass
        self.transport.abort()


class Splice:
    """A client's connection and the one to the target, on one link."""

    def __init__(self, link: Link, client: Side) -> None:
        self.link = link
        self.client = client
        self.server: Side | None = None
        self.lost = False
        """Bytes or an end were swallowed: nothing sensible can follow, so healing resets it."""
        self._queues: dict[Direction, deque[tuple[float, bytes]]] = {"up": deque(), "down": deque()}
        self._queued: dict[Direction, int] = {"up": 0, "down": 0}
        self._due: dict[Direction, float] = {"up": 0.0, "down": 0.0}
        self._timers: dict[Direction, asyncio.TimerHandle | None] = {"up": None, "down": None}
        self._overfull: set[Direction] = set()
        self._full: set[Direction] = set()
        client.splice = self
        link.splices.add(self)
        link.accepted += 1

    def server_side(self) -> Side:
        side = Side()
        side.splice = self
        return side

    def joined(self, server: Side) -> None:
        """The target accepted."""
        if self.client.gone:
            self.server = server
            self.reset()
            return
        self.server = server
        early = self.client.take_early()
        if early:
            self.pass_on(self.client, early)
        self.sync()

    # -- bytes -----------------------------------------------------------------------------------------
    def pass_on(self, source: Side, data: bytes) -> None:
        direction: Direction = "up" if source is self.client else "down"
        if self.link.swallows(direction):
            self.lost = True
            return
        target = self._target(direction)
        if target is None or target.transport.is_closing():
            return
        if self.link.prompt and not self._queues[direction]:
            target.transport.write(data)
        else:
            self._enqueue(direction, data)

    def _enqueue(self, direction: Direction, data: bytes) -> None:
        loop = asyncio.get_running_loop()
        link = self.link
        start = max(loop.time() + link.delay_s, self._due[direction])
        due = start + (len(data) / link.bytes_per_s if link.bytes_per_s else 0.0)
        self._due[direction] = due
        self._queues[direction].append((due, data))
        self._queued[direction] += len(data)
        if self._queued[direction] > MAX_QUEUED_BYTES:
            self._overfull.add(direction)
            self.sync()
        if self._timers[direction] is None:
            self._timers[direction] = loop.call_at(due, self._flush, direction)

    def _flush(self, direction: Direction) -> None:
        self._timers[direction] = None
        queue = self._queues[direction]
        target = self._target(direction)
        if target is None or target.transport.is_closing() or self.link.mode == "freeze":
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        while queue and (self.link.prompt or queue[0][0] <= now):
            _, data = queue.popleft()
            self._queued[direction] -= len(data)
            if self.link.swallows(direction):
                self.lost = True
            else:
                target.transport.write(data)
        if queue:
            self._timers[direction] = loop.call_at(queue[0][0], self._flush, direction)
            return
        self._due[direction] = 0.0
        if direction in self._overfull:
            self._overfull.discard(direction)
            self.sync()
        source = self.client if direction == "up" else self.server
        if source is not None and source.gone:
            target.transport.close()

    # -- reading on and off ----------------------------------------------------------------------------
    def _target(self, direction: Direction) -> Side | None:
        return self.server if direction == "up" else self.client

    def full(self, side: Side, is_full: bool) -> None:
        """`side` cannot (or can again) take more: its source waits."""
        direction: Direction = "down" if side is self.client else "up"
        (self._full.add if is_full else self._full.discard)(direction)
        self.sync()

    def sync(self) -> None:
        """Read from each side exactly if what it sends may pass."""
        frozen = self.link.mode == "freeze"
        for direction, side in (("up", self.client), ("down", self.server)):
            if side is None or side.gone or side.transport.is_closing():
                continue
            if frozen or direction in self._full or direction in self._overfull:
                side.transport.pause_reading()
            else:
                side.transport.resume_reading()

    def changed(self) -> None:
        """The link's mode changed: read accordingly, and send what may go now."""
        self.sync()
        if self.server is not None:
            for direction, queue in self._queues.items():
                timer = self._timers[direction]
                if timer is not None:
                    timer.cancel()
                if queue:
                    self._flush(direction)

    # -- ends ------------------------------------------------------------------------------------------
    def side_lost(self, side: Side, *, reset: bool) -> None:
        direction: Direction = "up" if side is self.client else "down"
        other = self._target(direction)
        if other is None or other.gone:
            self.forget()
        elif self.link.mode == "freeze" or self.link.swallows(direction):
            self.lost = True
        elif reset:
            self.reset()
        elif not self._queues[direction]:
            other.transport.close()

    def reset(self) -> None:
        """RST both ways, now."""
        self.forget()
        self.client.reset()
        if self.server is not None:
            self.server.reset()

    def forget(self) -> None:
        self.link.splices.discard(self)
        for timer in self._timers.values():
            if timer is not None:
                timer.cancel()
