"""Who serves a method: room membership of all replicas, in memory, as a value.

An entry is a socket that sits in a room ``rpc:<user>:<method>``. The newest entry serves; "newest" is a Lamport
stamp, ties go to the larger replica id. Entries of another replica are what it told; they die with it.
Also kept: which replicas have a user-scoped socket of an account, so that nothing is sent where nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

ROOM_PREFIX = "rpc:"


def rpc_room(account: str, method: str) -> str:
    """``rpc:<account>:<method>``; an account holds no colon (:mod:`moorage.accounts.names`), a method may."""
    return f"{ROOM_PREFIX}{account}:{method}"


def method_of(room: str) -> str:
    """The method of a room made by :func:`rpc_room`."""
    return room.removeprefix(ROOM_PREFIX).partition(":")[2]


@dataclass(slots=True, frozen=True)
class Entry:
    """One registration. Ordered by ``(stamp, replica)``: the largest serves."""

    room: str
    sid: str
    replica: str
    stamp: int
    resumable: bool

    @property
    def age(self) -> tuple[int, str]:
        return (self.stamp, self.replica)


class Registry:
    """All registrations of the cluster. Callbacks are synchronous."""

    def __init__(self, replica: str) -> None:
        self.replica = replica
        self.stamp = 0
        self._rooms: dict[str, dict[tuple[str, str], Entry]] = {}
        self._by_replica: dict[str, dict[tuple[str, str], Entry]] = {}
        self._listeners: dict[str, dict[str, int]] = {}
        self._watchers: dict[str, dict[Callable[[], None], None]] = {}
        self.tell: Callable[[list[Any]], int] = lambda item: 0
        """Told to all replicas; returns the number of the tell."""
        self.on_superseded: Callable[[Entry], None] = lambda entry: None
        """A local entry that is no longer the newest of its room."""
        self.on_left: Callable[[Entry], None] = lambda entry: None

    def __len__(self) -> int:
        return sum(len(entries) for entries in self._by_replica.values())

    # -- this replica ----------------------------------------------------------------------------------
    def join(self, room: str, sid: str, resumable: bool = False) -> int:
        """A local socket registers (again: it becomes the newest). Returns the number of the tell."""
        self.stamp += 1
        entry = Entry(room, sid, self.replica, self.stamp, resumable)
        number = self.tell(["+", room, sid, self.stamp, resumable])
        self._put(entry)
        return number

    def leave(self, room: str, sid: str) -> None:
        if self._remove(self.replica, room, sid):
            self.tell(["-", room, sid])

    def listen(self, account: str, change: int) -> None:
        """A local user-scoped socket of ``account`` came (+1) or went (-1)."""
        counts = self._listeners.setdefault(account, {})
        before = counts.get(self.replica, 0)
        after = before + change
        if after > 0:
            counts[self.replica] = after
        else:
            counts.pop(self.replica, None)
            if not counts:
                del self._listeners[account]
        if (before > 0) != (after > 0):
            self.tell(["u", account, after > 0])

    # -- the others ------------------------------------------------------------------------------------
    def apply(self, replica: str, items: Iterable[list[Any]]) -> None:
        """What ``replica`` told. Raises ValueError, TypeError or IndexError on what does not fit."""
        for item in items:
            if item[0] == "+":
                _, room, sid, stamp, resumable = item
                self.stamp = max(self.stamp, int(stamp))
                self._put(Entry(str(room), str(sid), replica, int(stamp), bool(resumable)))
            elif item[0] == "-":
                self._remove(replica, item[1], item[2])
            elif item[0] == "u":
                self._set_listening(replica, item[1], bool(item[2]))

    def replace(self, replica: str, items: list[list[Any]]) -> None:
        """The whole state of ``replica``; what it does not name is gone."""
        named = {(item[1], item[2]) for item in items if item[0] == "+"}
        for key in [k for k in self._by_replica.get(replica, {}) if k not in named]:
            self._remove(replica, *key)
        listening = {item[1] for item in items if item[0] == "u"}
        for account in [
            a for a, counts in self._listeners.items() if replica in counts and a not in listening
        ]:
            self._set_listening(replica, account, False)
        self.apply(replica, items)

    def drop(self, replica: str) -> None:
        """``replica`` is gone, and all it told with it."""
        self.replace(replica, [])

    def snapshot(self) -> list[list[Any]]:
        """Our own state, as items for :meth:`replace` elsewhere."""
        own = self._by_replica.get(self.replica, {}).values()
        items: list[list[Any]] = [["+", e.room, e.sid, e.stamp, e.resumable] for e in own]
        items += [
            ["u", account, True] for account, counts in self._listeners.items() if self.replica in counts
        ]
        return items

    # -- asking ----------------------------------------------------------------------------------------
    def resolve(self, room: str) -> Entry | None:
        """The newest registration of ``room``, or None."""
        entries = self._rooms.get(room)
        if not entries:
            return None
        if len(entries) == 1:
            return next(iter(entries.values()))
        return max(entries.values(), key=lambda e: e.age)

    def is_resumable(self, room: str, sid: str) -> bool:
        """A local socket serves ``room`` as resumable."""
        entry = self._rooms.get(room, {}).get((self.replica, sid))
        return entry is not None and entry.resumable

    def listens(self, account: str) -> bool:
        """True when some replica has a user-scoped socket of ``account``."""
        return account in self._listeners

    def watch(self, room: str, callback: Callable[[], None]) -> None:
        """Call ``callback`` at every new registration in ``room`` until :meth:`unwatch`."""
        self._watchers.setdefault(room, {})[callback] = None

    def is_watched(self, room: str) -> bool:
        """Somebody waits for a registration in ``room``."""
        return room in self._watchers

    def unwatch(self, room: str, callback: Callable[[], None]) -> None:
        callbacks = self._watchers.get(room)
        if callbacks is not None:
            callbacks.pop(callback, None)
            if not callbacks:
                del self._watchers[room]

    # -- inside ----------------------------------------------------------------------------------------
    def _put(self, entry: Entry) -> None:
        key = (entry.replica, entry.sid)
        room = self._rooms.setdefault(entry.room, {})
        if room.get(key) == entry:
            return  # told again, in the whole state of a replica
        room[key] = entry
        self._by_replica.setdefault(entry.replica, {})[(entry.room, entry.sid)] = entry
        if len(room) > 1:
            newest = max(room.values(), key=lambda e: e.age)
            for other in list(room.values()):
                if other.replica == self.replica and other is not newest:
                    self.on_superseded(other)
        for callback in list(self._watchers.get(entry.room, ())):
            callback()

    def _remove(self, replica: str, room: str, sid: str) -> bool:
        entries = self._rooms.get(room, {})
        entry = entries.pop((replica, sid), None)
        if entry is None:
            return False
        if not entries:
            del self._rooms[room]
        mine = self._by_replica[replica]
        del mine[(room, sid)]
        if not mine:
            del self._by_replica[replica]
        self.on_left(entry)
        return True

    def _set_listening(self, replica: str, account: str, listening: bool) -> None:
        counts = self._listeners.setdefault(account, {})
        if listening:
            counts[replica] = 1
        else:
            counts.pop(replica, None)
            if not counts:
                del self._listeners[account]
