"""What this node tells of its sockets, so that any node can take them over (:mod:`~moorage.cluster.sessions`)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from moorage.cluster.sessions import RESTATE_S, Marker, Sessions, Told, chunks

ROOM_S = 20e-6
"""[s] After telling of so many rooms the next marker waits so long for each: a socket that joins a thousand rooms
one by one must not be told of a thousand times with up to a thousand rooms."""


class Journal:
    """``append(namespace, marker)`` writes a marker to the stream; None: one process, nobody to tell."""

    def __init__(
        self,
        node: str,
        sessions: Callable[[str], Sessions],
        append: Callable[[str, dict[str, Any]], None] | None,
        describe: Callable[[str, str], tuple[list[str], Any]],
        position: Callable[[str], bytes],
    ) -> None:
        """``describe(namespace, sid)``: rooms and state of a socket here. ``position(namespace)``: the last entry that
        was delivered here."""
        self._node, self._sessions, self._append, self._describe = node, sessions, append, describe
        self._position = position
        self._mine: dict[tuple[str, str], Told] = {}
        self._changed: dict[tuple[str, str], bool] = {}
        self._unsent: dict[str, dict[str, Told]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._namespaces: dict[str, None] = {}
        self._next = 0.0

    # -- what happens to sockets here ----------------------------------------------------------------------
    def moved_here(self, namespace: str, sid: str) -> None:
        """A socket was recovered: others that still have it let it go."""
        known = self._sessions(namespace).get(sid)
        self._mine[namespace, sid] = Told(turn=known.told.turn + 1 if known is not None else 1)
        self._tell(namespace, sid)
        self._flush()

    def changed(self, namespace: str, sid: str) -> None:
        """Its rooms or its state are not those that connecting gives it."""
        self._changed[namespace, sid] = True
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next, loop.time()), self._flush)

    def gone(self, namespace: str, sid: str, *, ended: bool) -> None:
        """Its transport is gone; its rooms are still known. ``ended``: for good."""
        key = (namespace, sid)
        told = self._mine.get(key)
        if told is not None or key in self._changed:
            told = self._look(namespace, sid)
        turn = told.turn if told is not None else 0
        last = Told(turn=turn) if told is None or ended else told
        last.left, last.ended, last.at = True, ended, int(time.time() * 1000)
        self.forget(namespace, sid)
        self._queue(namespace, sid, last)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(max(self._next, loop.time()), self._flush)

    def forget(self, namespace: str, sid: str) -> None:
        """Another node has it, or it is gone."""
        self._mine.pop((namespace, sid), None)
        self._changed.pop((namespace, sid), None)

    def restate(self, namespaces: Iterable[str]) -> None:
        """Tell everything again, and that this node lives."""
        for namespace, sid in self._mine:
            self._tell(namespace, sid)
        for namespace in namespaces:
            self._sessions(namespace).lives(self._node, int(time.time() * 1000))
            self._unsent.setdefault(namespace, {})
        self._flush()

    # -- telling -------------------------------------------------------------------------------------------
    def _look(self, namespace: str, sid: str) -> Told:
        before = self._mine.get((namespace, sid))
        rooms, state = self._describe(namespace, sid)
        turn = before.turn if before is not None else 0
        read = self._position(namespace).decode()
        told = Told(turn=turn, at=int(time.time() * 1000), rooms=rooms, state=state, read=read)
        self._mine[namespace, sid] = told
        return told

    def _tell(self, namespace: str, sid: str) -> Told:
        told = self._look(namespace, sid)
        self._queue(namespace, sid, told)
        return told

    def _queue(self, namespace: str, sid: str, told: Told) -> None:
        self._sessions(namespace).apply(self._node, sid, told)
        if self._append is not None:
            self._unsent.setdefault(namespace, {})[sid] = told

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        changed, self._changed = self._changed, {}
        rooms = 0
        for namespace, sid in changed:
            rooms += len(self._tell(namespace, sid).rooms or ())
        self._next = asyncio.get_running_loop().time() + rooms * ROOM_S
        unsent, self._unsent = self._unsent, {}
        if self._append is None:
            return
        for namespace, sockets in unsent.items():
            for part in chunks(sockets) if sockets else [{}]:
                marker = Marker(self._node, int(time.time() * 1000), part)
                self._append(namespace, msgspec.to_builtins(marker))

    def stop(self) -> None:
        """Tell what was not told yet."""
        self._flush()


async def restate_for_ever(journal: Journal, namespaces: Callable[[], Iterable[str]]) -> None:
    """Runs :meth:`Journal.restate` every :data:`RESTATE_S`, first at once."""
    while True:
        journal.restate(namespaces())
        await asyncio.sleep(RESTATE_S)
