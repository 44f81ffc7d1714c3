"""What a reader of an event log has and lacks: each event once, in the order of the log. No I/O.

Frames may come twice and out of order where a replay or a catch-up overlaps live (PROTOCOL, "Event log frames").
The ledger drops what came before, holds back what is ahead of a missing event, and says how far everything is
known: the checkpoint, from which a lost connection is resumed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from moorage.client.event_frames import Checkpoint, Event, Gap, Number, Turn, number

MAX_HELD = 10_000
"""Events held back before the connection is given up: far above what a log keeps (EVENT_LOG_MAXLEN 200)."""

ZERO: Number = (0, 0)


class OtherLog(Exception):
    """Ids and numbers contradict what is known: this is another log than before (Redis came back empty)."""


@dataclass(slots=True)
class Statistics:
    """Counts since the stream was made."""

    connections: int = 0
    """``ws_ready`` received."""
    resumes: int = 0
    """Replays that were completed."""
    overlaps: int = 0
    """Connections on which an event came both live and by replay."""
    events: int = 0
    """Events of the log handed on."""
    unlogged: int = 0
    """Events without an id handed on."""
    replayed: int = 0
    """Of ``events``, those that a replay brought."""
    deduplicated: int = 0
    """Frames dropped because their event was known."""
    gaps: int = 0
    """Times that something was gone for good."""
    missed: int = 0
    """Events that were gone, as far as they could be counted."""
    malformed: int = 0
    """Frames that made no sense."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The view has to be built anew, from ``turn``: at the start, or after a gap.

    ``turn``: the latest turn with its events so far, None before any task. ``gap``: what the server said, None at
    the start. ``new``: those of the turn's events that were not handed on before. ``missed``: how many events
    are in neither, None if unknown."""

    turn: Turn | None
    gap: Gap | None
    new: tuple[Event, ...]
    missed: int | None


class Seen:
    """Ids that came already: at most those of one turn and of a replay, and all up to the checkpoint."""

    def __init__(self) -> None:
        self.floor: Number = ZERO
        self._ids: set[str] = set()

    def __contains__(self, event_id: object) -> bool:
        return event_id in self._ids or (number(event_id) or ZERO) <= self.floor

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, event_id: str) -> None:
        self._ids.add(event_id)

    def discard(self, event_id: str) -> None:
        self._ids.discard(event_id)

    def clear(self) -> None:
        """A turn begins, or a replay is over. What is above the floor stays: a replay of the turn before may still
        be under way."""
        self._ids = {event_id for event_id in self._ids if (number(event_id) or ZERO) > self.floor}

    def refill(self, events: tuple[Event, ...], floor: Number) -> None:
        """Know exactly these, and everything up to ``floor``."""
        self._ids = {event.id for event in events if event.id is not None}
        self.floor = floor


class Ledger:
    """Feed it what a connection brings, in order; it returns what to hand on."""

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self.checkpoint = checkpoint
        self.statistics = Statistics()
        self.seen = Seen()
        self.replaying = False
        self.rebuilding = False
        self._position = checkpoint  # the last event handed on; ahead of the checkpoint during a replay
        self._head: Checkpoint | None = None
        self._held: dict[int, Event] = {}
        self._idless: list[tuple[int, Event]] = []  # (seq of the event it follows, event)
        self._waiting: list[Event] = []
        self._gap: Gap | None = None
        self._read_up_to: Number = ZERO  # what the replay of this connection covered
        self._known_before: Number = ZERO
        self._overlapped = False
        if checkpoint is not None:
            self.seen.floor = checkpoint.number

    # -- a connection --------------------------------------------------------------------------------------

    def begin(self, *, rebuild: bool = False) -> list[Event]:
        """A new connection: a replay comes if there is a checkpoint. Returns what was held back without an id."""
        for event in self._held.values():
            self.seen.discard(event.id or "")
        left = [event for _, event in self._idless] + [event for event in self._waiting if event.id is None]
        self._held, self._idless, self._waiting = {}, [], []
        self.replaying = self.checkpoint is not None
        self.rebuilding = rebuild and not self.replaying
        self._gap, self._head = None, None
        self._read_up_to = ZERO
        self._known_before = self._position.number if self._position is not None else ZERO
        self._overlapped = not self.replaying
        return left

    def ready(self, head: Checkpoint) -> None:
        """``ws_ready``. Without a checkpoint, and unless a turn is fetched, the log's end is where we begin.

        A server says it again, with a gap after it, when it finds that its own view of the log broke."""
        self.statistics.connections += self._head is None
        self._head = head
        if self.checkpoint is None and not self.rebuilding:
            self._position = head
            self._move(head)

    def event(self, event: Event) -> list[Event]:
        """What can be handed on now: the event, with all that waited for it, or nothing.

        Raises :class:`OtherLog`, after which the connection is of no use."""
        if self.rebuilding:
            self._waiting.append(event)
            return []
        if event.id is None:
            return self._without_id(event)
        if event.id in self.seen:
            self._doubled(event)
            return []
        self._check_order(event)
        self.seen.add(event.id)
        position, seq = self._position, event.seq or 0
        if position is None or position.seq is None or seq == position.seq + 1:
            return self._release(event)
        if seq <= position.seq:
            return [self._count(event)]
        self._held[seq] = event
        return []

    def done(self, last_id: str) -> None:
        """``replay_done``: from here on the checkpoint moves with every event."""
        self.replaying = False
        self.statistics.resumes += 1
        self._read_up_to = number(last_id) or ZERO
        if self._position is not None:
            if self._position.epoch is None and self._head is not None:
                self._position = replace(self._position, epoch=self._head.epoch)
            self._move(self._position)
        self.seen.clear()

    # -- what is missing -----------------------------------------------------------------------------------

    @property
    def overflowing(self) -> bool:
        """More is held back than any log keeps: better to read it anew."""
        return len(self._held) + len(self._waiting) + len(self._idless) > MAX_HELD

    @property
    def hole(self) -> bool:
        """An event is missing although no replay is under way. A server's catch-up may still bring it."""
        if self.replaying or self.rebuilding:
            return False
        return bool(self._held) or (self._position is not None and self._position.number < self._read_up_to)

    @property
    def behind(self) -> bool:
        """A rebuilt turn ends before the place where the connection began: the log has to be read from there."""
        position, head = self._position, self._head
        if self.replaying or self.rebuilding or position is None or head is None:
            return False
        return position.epoch == head.epoch and position.number < head.number

    def give_up(self) -> list[Event] | None:
        """The hole was waited for long enough. None: connect anew, the log may have it. Else the log was read
        beyond it and has it not: it counts as missed, and this comes after it."""
        position, first = self._position, min(self._held, default=None)
        assert position is not None
        if first is not None:
            beyond = number(self._held[first].id) or ZERO
            if position.number >= self._read_up_to and beyond > self._read_up_to:
                return None
            self._missing(first - position.seq - 1 if position.seq is not None else None)
            return self._release(self._held.pop(first))
        head = self._head
        seq = head.seq if head is not None and head.number == self._read_up_to else None
        self._missing(None if seq is None or position.seq is None else seq - position.seq)
        last = f"{self._read_up_to[0]}-{self._read_up_to[1]}"
        self._position = Checkpoint(last, seq, position.epoch)
        self._move(self._position)
        return []

    def gap(self, gap: Gap) -> None:
        """``replay_gap``: hold everything back until :meth:`rebuilt`. What was held back before is in the turn."""
        self._gap = gap
        self.replaying, self.rebuilding = False, True
        for event in self._held.values():
            self.seen.discard(event.id or "")
        self._waiting = [event for event in self._waiting if event.id is None]
        self._waiting += [event for _, event in self._idless]
        self._held, self._idless = {}, []

    def rebuilt(self, turn: Turn | None) -> tuple[Rebuilt | None, list[Event]]:
        """The turn was fetched after ``ws_ready``, or there is none. Returns what to show anew, and the frames
        that came meanwhile, to be fed to :meth:`event` now."""
        before, gap, waiting = self._position, self._gap, self._waiting
        self.rebuilding, self._gap, self._waiting = False, None, []
        last = (turn.last if turn is not None else None) or self._head
        events = turn.events if turn is not None else ()
        same = before is not None and last is not None and before.epoch == last.epoch
        new = tuple(event for event in events if not same or event.id not in self.seen)
        missed = gap.missed if gap is not None else 0
        if gap is not None and same and before is not None and last is not None:
            missed = _lost(before, last, events, missed)
        if gap is not None:
            self._missing(missed)
        self.statistics.events += len(new)
        if last is not None:
            self._position = last
            self._move(last)
            self.seen.refill(events, last.number)
        if turn is None and gap is None:
            return None, waiting
        return Rebuilt(turn, gap, new, missed), waiting

    # -- inside ----------------------------------------------------------------------------------------------

    def _without_id(self, event: Event) -> list[Event]:
        self.statistics.unlogged += 1
        if self._held:
            self._idless.append((max(self._held), event))
            return []
        return [event]

    def _doubled(self, event: Event) -> None:
        self.statistics.deduplicated += 1
        if not self._overlapped and (number(event.id) or ZERO) > self._known_before:
            self._overlapped = True
            self.statistics.overlaps += 1

    def _check_order(self, event: Event) -> None:
        """In one log a larger id has a larger number."""
        position = self._position
        if position is None or position.seq is None or event.seq is None:
            return
        if ((number(event.id) or ZERO) > position.number) != (event.seq > position.seq):
            raise OtherLog(f"event {event.id} has number {event.seq}, after {position.id} {position.seq}")

    def _release(self, event: Event) -> list[Event]:
        """Hand on an event, and those held back that follow it."""
        out: list[Event] = []
        following: Event | None = event
        while following is not None:
            seq = following.seq or 0
            out.append(self._hand_on(following))
            out += [idless for after, idless in self._idless if after <= seq]
            self._idless = [pair for pair in self._idless if pair[0] > seq]
            following = self._held.pop(seq + 1, None)
        return out

    def _hand_on(self, event: Event) -> Event:
        epoch = self._head.epoch if self._head is not None else None
        self._position = Checkpoint(event.id or "", event.seq, epoch)
        if not self.replaying:
            self._move(self._position)
        if event.type == "session_created":
            self.seen.clear()
        return self._count(event)

    def _count(self, event: Event) -> Event:
        self.statistics.events += 1
        if self.replaying and self._head is not None and (number(event.id) or ZERO) <= self._head.number:
            self.statistics.replayed += 1
            return replace(event, replayed=True)
        return event

    def _move(self, place: Checkpoint) -> None:
        self.checkpoint = place
        self.seen.floor = place.number

    def _missing(self, count: int | None) -> None:
        self.statistics.gaps += 1
        self.statistics.missed += count or 0


def _lost(before: Checkpoint, last: Checkpoint, events: tuple[Event, ...], told: int | None) -> int | None:
    """How many events after ``before`` are not among the turn's."""
    if before.seq is None or last.seq is None:
        return told
    there = sum(1 for event in events if event.seq is not None and event.seq > before.seq)
    return max(0, last.seq - before.seq - there)
