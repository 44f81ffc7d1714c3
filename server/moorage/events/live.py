"""From the log to the readers here: own appends at once, those of other replicas by the live channel.

Each session with readers is a :class:`Group` with one :class:`~moorage.events.order.Order`. Whatever the order
misses, for whichever reason, is read from the log by one task of the group, :meth:`Live._mend`; when that is not
possible, all its readers are told of the gap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from moorage.bugs import log_bug
from moorage.errors import BackplaneError
from moorage.events.frames import START, EventId, Frame, Head, Resume, ready_frame
from moorage.events.gaps import Gap, find_gap
from moorage.events.order import Order
from moorage.events.readers.base import NO_SESSION, Reader
from moorage.events.store import READ_COUNT, Entry, SessionDeleted, Span

log = logging.getLogger(__name__)

EARLY_S = 0.01
"""[s] An early event waits this long for the one before it to come by itself, then the log is read. It is some
hundred times the way through Redis, and still within what an event may take."""

LOOKS = 4
"""Looks into the log for what was heard of and is not there, each twice as long after the one before."""

RETRY_MAX_S = 1.0
"""[s] Longest pause before a log that cannot be read is tried again."""

MENDS_MAX = 64
"""Logs read at the same time when the subscription is back."""


class Envelope(msgspec.Struct):
    """A message of the live channel. With ``id``: logged (without ``event``: only that it is there)."""

    origin: str
    sessionId: str
    epoch: str | None = None
    id: str | None = None
    seq: int | None = None
    event: msgspec.Raw = msgspec.Raw()
    deleted: bool = False


class Group:
    """The readers of one session here."""

    __slots__ = ("mending", "order", "readers", "session_id", "stale")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.readers: dict[Reader, None] = {}
        self.order = Order()
        self.mending: asyncio.Task[None] | None = None
        self.stale = True
        """The log must be read, whatever the order knows."""

    def push(self, frames: list[Frame]) -> None:
        for frame in frames:
            for reader in self.readers:
                reader.live(frame)


class Live:
    """``read``: :meth:`Store.read`. ``reachable()`` returns when reading is worth trying."""

    def __init__(
        self,
        read: Callable[[str, EventId | None, int], Awaitable[Span]],
        reachable: Callable[[], Awaitable[None]],
        own: bytes = b"",
    ) -> None:
        """``own``: how our own envelopes begin."""
        self.groups: dict[str, Group] = {}
        self.malformed = 0
        """Messages of the live channel that were none of ours."""
        self.on_deleted: Callable[[str], None] = lambda session_id: None
        """Told of a session that was deleted, here or elsewhere; more than once, and not of every one."""
        self._read = read
        self._reachable = reachable
        self._own = own
        self._decoder = msgspec.json.Decoder(Envelope)
        self._mends = asyncio.Semaphore(MENDS_MAX)

    # -- readers -----------------------------------------------------------------------------------------------
    def join(self, reader: Reader) -> Group:
        """Register; ``ws_ready`` is sent as soon as it is known where the log stands."""
        group = self.groups.get(reader.session_id)
        if group is None:
            group = self.groups[reader.session_id] = Group(reader.session_id)
        group.readers[reader] = None
        reader.on_end.append(self._leave)
        if group.order.placed:
            self._begin(group, reader)
        else:
            self._mend_soon(group)
        return group

    def _leave(self, reader: Reader) -> None:
        group = self.groups.get(reader.session_id)
        if group is not None and reader in group.readers:
            del group.readers[reader]
            if not group.readers:
                del self.groups[reader.session_id]
                if group.mending is not None:
                    group.mending.cancel()

    def _begin(self, group: Group, reader: Reader) -> None:
        order = group.order
        reader.begin(ready_frame(group.session_id, order.id, order.seq, order.epoch), order.epoch)

    def end_session(self, session_id: str, code: int) -> None:
        """End all readers of a session here."""
        if code == NO_SESSION:
            self.on_deleted(session_id)
        group = self.groups.get(session_id)
        for reader in list(group.readers) if group is not None else ():
            reader.end(code)

    def all_readers(self) -> list[Reader]:
        """Every reader here."""
        return [reader for group in self.groups.values() for reader in group.readers]

    # -- events ------------------------------------------------------------------------------------------------
    def appended(self, session_id: str, epoch: str, id: EventId, seq: int, event: bytes) -> None:
        """Our own append is done."""
        group = self.groups.get(session_id)
        if group is not None:
            self._take(group, epoch, Frame.event(event, id, seq))

    def idless(self, session_id: str, event: bytes) -> None:
        """An event that is not logged."""
        group = self.groups.get(session_id)
        if group is not None:
            group.push(group.order.idless(Frame.event(event)))

    def message(self, payload: bytes) -> None:
        """A message of the live channel, from anybody."""
        if self._own and payload.startswith(self._own):
            return
        if not self.groups and not payload.endswith(b"true}"):
            return  # nobody here to tell; deletions are of interest without readers, too
        try:
            envelope = self._decoder.decode(payload)
            if envelope.deleted:
                self.on_deleted(envelope.sessionId)
            group = self.groups.get(envelope.sessionId)
            if group is not None:
                self._message(group, envelope)
        except (msgspec.MsgspecError, ValueError) as error:
            self.malformed += 1
            log.debug("malformed message on the live channel: %s", type(error).__name__)

    def _message(self, group: Group, envelope: Envelope) -> None:
        """Raises ValueError."""
        event = bytes(envelope.event)
        if event:
            event.decode()  # or a browser would end the connection
            if not event.startswith(b"{"):
                raise ValueError("event")
        if envelope.deleted:
            group.stale = True  # the log itself says so too, and only that counts
            self._mend_soon(group)
        elif envelope.id is None:
            if not event:
                raise ValueError("nothing")
            group.push(group.order.idless(Frame.event(event)))
        else:
            id, seq, epoch = EventId.parse(envelope.id), envelope.seq, envelope.epoch
            if id is None or epoch is None or seq is None or not 0 < seq < 2**53:
                raise ValueError("place")
            if event:
                self._take(group, epoch, Frame.event(event, id, seq))
            else:
                group.order.heard(epoch, seq)
                self._look_later(group)

    def _take(self, group: Group, epoch: str, frame: Frame) -> None:
        group.push(group.order.live(epoch, frame))
        if group.order.behind:
            self._look_later(group)

    # -- what is missing ---------------------------------------------------------------------------------------
    def catch_up(self) -> None:
        """The subscription is back: what was published meanwhile is in the logs."""
        for group in list(self.groups.values()):
            group.stale = True
            self._mend_soon(group)

    def _look_later(self, group: Group) -> None:
        if group.mending is None and group.order.behind:
            self._start(group, EARLY_S)

    def _mend_soon(self, group: Group) -> None:
        if group.mending is None:
            self._start(group, 0)

    def _start(self, group: Group, delay_s: float) -> None:
        group.mending = asyncio.get_running_loop().create_task(self._mending(group, delay_s))

    async def _mending(self, group: Group, delay_s: float) -> None:
        try:
            await self._mend(group, delay_s)
        except SessionDeleted:
            self.end_session(group.session_id, NO_SESSION)
        except Exception as error:
            log_bug(log, "reading what a session missed", error)
            self.end_session(group.session_id, 1011)
        finally:
            group.mending = None
        if group.readers and (group.stale or group.order.behind):
            self._start(group, EARLY_S)

    async def _mend(self, group: Group, delay_s: float) -> None:
        """Read after the order's position until nothing is missing."""
        looks = failures = 0
        while True:
            if delay_s:
                await asyncio.sleep(delay_s)
            if not (group.stale or group.order.behind):
                return
            group.stale = False
            try:
                async with self._mends:
                    last_seq = await self._read_on(group)
            except BackplaneError:
                group.stale = True
                await self._reachable()
                failures += 1
                delay_s = min(RETRY_MAX_S, EARLY_S * 2**failures)
                continue
            if not group.order.behind:
                return
            looks += 1
            failures = 0
            delay_s = EARLY_S * 2**looks
            if looks == LOOKS:
                group.push(group.order.settle(last_seq))

    async def _read_on(self, group: Group) -> int:
        """To the end of the log; returns its last number."""
        order = group.order
        if not order.placed:
            head = (await self._read(group.session_id, None, 0)).head
            through = order.place(head.epoch, head.last_seq, head.last)
            for reader in list(group.readers):
                self._begin(group, reader)
            # What is logged was counted by `ws_ready`: who resumes reads it from the log, or it would come twice.
            group.push([frame for frame in through if frame.id is None])
            return head.last_seq
        while True:
            at = order.id
            resume = Resume(str(at), order.seq, order.epoch)
            span = await self._read(group.session_id, at, READ_COUNT)
            gap = find_gap(resume, span.head, span.entries[0].seq if span.entries else None)
            if gap is None:
                for entry in span.entries:
                    group.push(order.read(frame_of(entry)))
                if not span.more:
                    return span.head.last_seq
            elif order.id == at:  # else the live channel has brought what follows, meanwhile
                self._reset(group, span.head, gap)

    def _reset(self, group: Group, head: Head, gap: Gap) -> None:
        """Tell of the gap and go on behind it: with the beginning of a new log if that is kept, else at the end."""
        anew = head.epoch != group.order.epoch and head.oldest_seq == 1
        last, last_seq = (START, 0) if anew else (head.last, head.last_seq)
        through = group.order.place(head.epoch, last_seq, last)
        ready = ready_frame(group.session_id, last, last_seq, head.epoch)
        for reader in list(group.readers):
            reader.reset(ready, head.epoch, gap)
        group.push(through)


def frame_of(entry: Entry) -> Frame:
    """The frame of a kept event."""
    return Frame.event(entry.event, entry.id, entry.seq)
