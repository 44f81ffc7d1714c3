"""What is known of sockets that may come back: rooms they joined later, where they live, when they left. No I/O.

Each node tells it by *markers*, entries of the cluster stream of a type that Node's adapter skips. A marker states
the whole of a socket, so the newest one is enough, and versions order them wherever they are read. A socket of
which nothing is told has only the rooms that its connect handler gives it. Nodes tell their sockets again every
:data:`RESTATE_S`, so who has read that much of the stream, or all of it since the session began, knows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from moorage.cluster.writer import parse_id

RESTATE_S = 30.0
"""[s] How often a node repeats what it tells of its sockets: a new node knows all after twice that time."""

SOCKETS_PER_MARKER = 200
"""So that one entry stays small."""


class Told(msgspec.Struct, omit_defaults=True):
    """One socket in a marker. ``rooms``: all its rooms but its own; None: those that connecting gives it.

    ``state``: what the application keeps with it. ``turn``: how many times it was recovered. ``at``: epoch [ms].
    ``left``: its transport is gone. ``ended``: it cannot come back. ``read``: the entry of the stream that its node
    had read last; empty: not told, as by earlier versions.
    """

    turn: int = 0
    at: int = 0
    rooms: list[str] | None = None
    state: Any = None
    left: bool = False
    ended: bool = False
    read: str = ""

    @property
    def is_plain(self) -> bool:
        """Nothing but that it is gone."""
        return self.rooms is None and self.state is None and not self.turn


class Marker(msgspec.Struct):
    """``node``, alive at ``at`` (epoch [ms]), tells of ``sockets``: sid -> what it is."""

    node: str
    at: int
    sockets: dict[str, Told]


class Known(msgspec.Struct):
    """The newest that was told of a socket, and when that was heard here (monotonic seconds)."""

    node: str
    told: Told
    heard: float

    @property
    def version(self) -> tuple[int, int, str]:
        return (self.told.turn, self.told.at, self.node)


class Sessions:
    """Merges markers of all nodes. ``window_s``: how long a socket that left is remembered.

    Of a socket that is plainly gone nothing is remembered, or every client that ever left would cost memory for
    minutes: when it comes back, that is found in the stream behind its offset. ``only_here``: there is no stream.
    """

    def __init__(
        self, window_s: float, *, only_here: bool = False, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.window_s = window_s
        self._only_here = only_here
        self._now = now
        self._known: dict[str, Known] = {}
        self._alive: dict[str, int] = {}
        self._next_sweep = now() + RESTATE_S
        self.since: bytes | None = None
        """Id behind which all entries were read here. None: nothing was read yet."""

    def __len__(self) -> int:
        return len(self._known)

    def get(self, sid: str) -> Known | None:
        return self._known.get(sid)

    def read(self, marker: Marker) -> list[str]:
        """A marker of another node, old or new. Returns the sids of which it was news."""
        self.lives(marker.node, marker.at)
        return [sid for sid, told in marker.sockets.items() if self.apply(marker.node, sid, told)]

    def apply(self, node: str, sid: str, told: Told, *, found: bool = False) -> bool:
        """True: it was news. ``found``: in the stream, for a socket that comes back."""
        before = self._known.get(sid)
        if before is None and told.is_plain and not (found or self._only_here):
            return True
        known = Known(node, told, self._now())
        if before is not None and before.version > known.version:
            return False
        self._known[sid] = known
        if known.heard >= self._next_sweep:
            self._sweep()
        return True

    def knows(self, sid: str, node: str, start: bytes, now_ms: int) -> bool:
        """Whether all there is to know of a session is known: it connected to ``node`` when the stream was at
        ``start``. What is still missing is in entries before :attr:`since`."""
        if self.since is None:
            return False
        since = parse_id(self.since)
        if since == (0, 0) or since[0] <= now_ms - self.horizon_ms:
            return True
        known = self._known.get(sid)
        if known is None:
            return since <= parse_id(start) and node in self._alive
        return known.told.left or known.node in self._alive

    def lives(self, node: str, at_ms: int) -> None:
        """A sign of life of a node."""
        self._alive[node] = max(at_ms, self._alive.get(node, 0))

    @property
    def horizon_ms(self) -> int:
        """A socket that can still come back was told of within this time, if there is anything to tell."""
        return int((self.window_s + 2 * RESTATE_S) * 1000)

    def is_over(self, sid: str, node: str, now_ms: int) -> bool:
        """The socket ended, or has been away for longer than the window. ``node``: where it connected at first.

        When it left is told; when its node was killed, by the last sign of life, which is at most
        :data:`RESTATE_S` older.
        """
        known = self._known.get(sid)
        if known is not None and known.told.left:
            return known.told.ended or now_ms - known.told.at > self.window_s * 1000
        alive = self._alive.get(known.node if known is not None else node, 0)
        return now_ms - alive > (self.window_s + RESTATE_S) * 1000

    def _sweep(self) -> None:
        """Forget those of which nothing was heard for longer than they could still come back."""
        self._next_sweep = self._now() + RESTATE_S
        oldest = self._now() - self.window_s - 2 * RESTATE_S
        for sid in [sid for sid, known in self._known.items() if known.heard < oldest]:
            del self._known[sid]
        oldest_ms = int(time.time() * 1000) - self.horizon_ms
        self._alive = {node: at for node, at in self._alive.items() if at >= oldest_ms}


def chunks(sockets: dict[str, Told]) -> Iterator[dict[str, Told]]:
    """In pieces of at most :data:`SOCKETS_PER_MARKER`."""
    items = list(sockets.items())
    for first in range(0, len(items), SOCKETS_PER_MARKER):
        yield dict(items[first : first + SOCKETS_PER_MARKER])
