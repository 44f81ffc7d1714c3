"""Changes of rooms that are entries of the stream, for sockets whose node was killed before it told of them. No I/O.

What a node tells of a socket (:mod:`~moorage.cluster.sessions`) says how far it had read. Entries behind that place
in which other nodes make sockets join or leave are applied to it when it comes back, in their order.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable
from typing import NamedTuple

from moorage.cluster import wire
from moorage.cluster.pids import Pid
from moorage.cluster.sessions import Known
from moorage.cluster.writer import StreamId, parse_id

OFFSET = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)
UNTOLD_MS = 2000
"""A node that sent a client an event has told of all changes that are so much older; it takes some milliseconds."""
LIVE_MAX = 10_000
"""Changes kept for one socket while its connect handler runs; beyond that the oldest are forgotten."""


class Change(NamedTuple):
    """The sockets of ``opts`` join or leave ``rooms``. ``at``: the entry's id; None: this node's own, of just now."""

    at: StreamId | None
    joins: bool
    opts: wire.Opts
    rooms: Collection[str]

    def apply(self, sid: str, rooms: frozenset[str]) -> frozenset[str]:
        """``rooms`` of the socket ``sid`` before and after; its own is not among them."""
        mine, to = rooms | {sid}, self.opts.room_names
        if (to and mine.isdisjoint(to)) or not mine.isdisjoint(self.opts.except_names):
            return rooms
        return rooms | set(self.rooms) - {sid} if self.joins else rooms - set(self.rooms)


class Changes:
    """Those of one namespace, for one socket that comes back: read of the stream, then live."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self._read: list[Change] = []
        self._live: deque[Change] = deque(maxlen=LIVE_MAX)

    def live(self, change: Change) -> None:
        """One that has just come."""
        self._live.append(change)

    def read(self, found: Iterable[Change]) -> None:
        """All of the past."""
        self._read = list(found)

    def apply(self, sid: str, rooms: frozenset[str], known: Known | None) -> frozenset[str]:
        """What its rooms have become since its node told of it."""
        told = told_until(known)
        if known is not None and told is None:
            return rooms
        seen = {change.at for change in self._read}
        for change in [*self._read, *(live for live in self._live if live.at is None or live.at not in seen)]:
            if told is None or change.at is None or change.at > told:
                rooms = change.apply(sid, rooms)
        return rooms


def told_until(known: Known | None) -> StreamId | None:
    """How far the node of a socket had read when it told of it.

    None: not known, or nothing is to be applied: who has left before gets no changes of after that.
    """
    if known is None or known.told.left or OFFSET.fullmatch(known.told.read) is None:
        return None
    return parse_id(known.told.read.encode())


def first_place(known: Known | None, pid: Pid, offset: bytes) -> StreamId | None:
    """Behind this place are the changes that may be untold. None: nobody need look."""
    told = told_until(known)
    if known is not None and told is None:
        return None
    return max(told or parse_id(pid.start), (max(0, parse_id(offset)[0] - UNTOLD_MS), 0))
