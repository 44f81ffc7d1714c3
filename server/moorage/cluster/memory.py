"""One process without Redis, with connection state recovery: the last events are kept in memory."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from itertools import islice
from typing import Any

from moorage.cluster import checks, wire
from moorage.cluster.changes import Change
from moorage.cluster.fanout import FanOut
from moorage.cluster.local import names_of
from moorage.cluster.packets import arguments
from moorage.cluster.pids import Pid
from moorage.cluster.recovery import Recovery
from moorage.cluster.sessions import Sessions, Told
from moorage.cluster.writer import parse_id

KEPT_MAX_ENTRIES = 10_000
"""As many as a replica keeps while Redis is away."""
KEPT_MAX_BYTES = 64 * 1024 * 1024
PAGE = 500
"""Events looked at before others get their turn."""


class MemoryLog:
    """:class:`~moorage.cluster.recovery.Log` of one process: events of all namespaces in one order."""

    def __init__(self, window_s: float, node: str) -> None:
        self._node = node
        self._sessions = Sessions(window_s, only_here=True)
        self._sessions.since = b"0-0"
        self._entries: deque[tuple[tuple[int, int], wire.Message]] = deque()
        self._bytes = 0
        self._last = (int(time.time() * 1000), 0)
        self._first_kept = self._last
        """Everything after this is kept."""

    def append(self, namespace: str, data: bytes) -> tuple[bytes, wire.Message]:
        """Keep an event; ``data`` as in a stream entry. Returns its id and what it is."""
        now = int(time.time() * 1000)
        self._last = (now, 0) if now > self._last[0] else (self._last[0], self._last[1] + 1)
        fields = [b"uid", b"", b"nsp", namespace.encode(), b"type", b"%d" % wire.BROADCAST, b"data", data]
        message = wire.decode_entry(fields)
        assert isinstance(message, wire.Message)
        self._entries.append((self._last, message))
        self._bytes += len(data)
        while len(self._entries) > KEPT_MAX_ENTRIES or self._bytes > KEPT_MAX_BYTES:
            self._first_kept, oldest = self._entries.popleft()
            self._bytes -= len(oldest.data)
        return self.position(namespace), message

    def position(self, namespace: str) -> bytes:
        """The last event."""
        return b"%d-%d" % self._last

    async def placed(self, namespace: str) -> bool:
        """From the beginning."""
        return True

    async def holds(self, namespace: str, offset: bytes) -> bool:
        """True if nothing after ``offset``, which must be of this process, was let go."""
        return self._first_kept <= parse_id(offset) <= self._last

    async def missed(
        self, namespace: str, mine: Collection[str], after: bytes, until: bytes
    ) -> AsyncIterator[list[tuple[bytes, wire.Broadcast]]]:
        """Broadcasts to ``mine`` (rooms and sid) behind ``after`` and not behind ``until``, in parts."""
        last, end, rooms = parse_id(after), parse_id(until), set(mine)
        while last < end:
            first = bisect_right(self._entries, last, key=lambda entry: entry[0])
            page = list(islice(self._entries, first, first + PAGE))
            part = []
            for last, message in page:
                body = message.body()
                if last <= end and message.nsp == namespace and isinstance(body, wire.Broadcast):
                    to, but = body.opts.room_names, body.opts.except_names
                    if (not to or rooms & set(to)) and not rooms & set(but):
                        part.append((b"%d-%d" % last, body))
            yield part
            if len(page) < PAGE:
                return

    async def told(self, namespace: str, sid: str, after: bytes) -> list[tuple[str, Told]]:
        """All is known without looking."""
        return []

    async def changes(self, namespace: str, after: tuple[int, int]) -> list[Change]:
        """There is no other node."""
        return []

    def sessions(self, namespace: str) -> Sessions:
        """What is known of sockets that may come back."""
        self._sessions.lives(self._node, int(time.time() * 1000))
        return self._sessions

    async def learn(self, namespace: str, pid: Pid) -> None:
        """There is nothing else to learn from."""

    def stop(self) -> None:
        """Nothing is kept elsewhere."""


class MemoryManager(FanOut):
    """Client manager of one process whose clients can be recovered; see :class:`Recovery` for the arguments."""

    def __init__(self, *, recovery_secret: str, recovery_window_ms: int = 120_000) -> None:
        super().__init__()
        node = wire.new_uid()
        self._log = MemoryLog(recovery_window_ms / 1000, node)
        self.recovery = Recovery(
            self,
            self._log,
            node=node,
            secret=recovery_secret,
            window_ms=recovery_window_ms,
            append=None,
        )

    def emit_recoverable(
        self,
        event: str,
        args: Sequence[Any],
        rooms: Collection[str],
        except_: Collection[str] = (),
        namespace: str = "/",
    ) -> None:
        """Deliver, and keep for clients that are away. Raises as :meth:`emit_local` does."""
        data = wire.encode_data(wire.broadcast(event, args, wire.opts(rooms, except_)))
        entry_id, message = self._log.append(namespace, data)
        body = message.body()
        assert isinstance(body, wire.Broadcast)
        self.deliver(namespace, body, entry_id)

    async def emit_counted(
        self,
        counter: str,
        event: str,
        payload: dict[str, Any],
        rooms: Collection[str],
        except_: Collection[str] = (),
    ) -> int:
        """See :meth:`LocalManager.emit_counted`."""
        seq = self._counters.get(counter, 0) + 1
        payload["seq"] = seq
        self.emit_recoverable(event, [payload], rooms, except_)
        self._counters[counter] = seq
        return seq

    async def emit(
        self,
        event: str,
        data: Any,
        namespace: str,
        room: Any = None,
        skip_sid: Any = None,
        callback: Callable[..., Any] | None = None,
        to: Any = None,
        **kwargs: Any,
    ) -> None:
        """As in python-socketio; without a ``callback`` clients that are away get it later."""
        if callback is not None:
            await super().emit(event, data, namespace, room, skip_sid, callback, to, **kwargs)
            return
        checks.event_name(event)
        chosen = to if to is not None else room
        rooms = names_of(chosen)
        if rooms or chosen is None:
            self.emit_recoverable(event, arguments(data), rooms, names_of(skip_sid), namespace)
