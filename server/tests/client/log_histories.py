"""Random histories of one log and one reader: turns, cuts, replays that overlap live, trimming, a wiped log.

A history is played on a Python :class:`Ledger` and recorded, so that the JavaScript one can be held against it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from hypothesis import strategies as st

from moorage.client.event_frames import Checkpoint, Event, Gap, turn_of
from moorage.client.event_ledger import Ledger, Rebuilt

from .log_server import event_frame

OFTEN = ("append", "replay", "live")
SELDOM = ("turn", "unlogged", "again", "trim", "fetched", "cut")
ACTIONS = st.lists(st.sampled_from(OFTEN + OFTEN + SELDOM), max_size=60)
"""What happens, in order: methods of :class:`History`."""


@dataclass
class Log:
    """Events as frames; ids cross from three to four digits, where their order as text would be wrong."""

    frames: list[dict[str, Any]] = field(default_factory=list)
    trimmed_to: int = 0
    turn_begins: int = 0
    epoch: str = "e1"

    def append(self, type_: str) -> dict[str, Any]:
        seq = len(self.frames) + 1
        frame = event_frame(f"{985 + seq // 2 * 3}-{seq}", seq, type_)
        self.frames.append(frame)
        if type_ == "session_created":
            self.turn_begins = seq
        return frame

    @property
    def head(self) -> Checkpoint:
        last = self.frames[-1] if self.frames else {"id": "0-0", "seq": 0}
        return Checkpoint(last["id"], last["seq"], self.epoch)

    def after(self, seq: int) -> list[dict[str, Any]]:
        return [frame for frame in self.frames if frame["seq"] > max(seq, self.trimmed_to)]

    def turn(self) -> dict[str, Any] | None:
        if not self.turn_begins:
            return None
        events = self.after(self.turn_begins - 1)
        head = self.head if events else Checkpoint("0-0", 0)
        turn = {"taskId": "t", "status": "running", "events": events, "epoch": self.epoch}
        return turn | {"lastEventId": head.id, "lastSeq": head.seq}


def event_of(frame: dict[str, Any]) -> Event:
    return Event(frame["id"], frame["seq"], frame["event"]["type"], None, None, 1)


class Reader:
    """A ledger whose every step is written down: operation, arguments, what came out, where it stands."""

    def __init__(self, checkpoint: Checkpoint | None = None) -> None:
        self.ledger = Ledger(checkpoint)
        self.steps: list[dict[str, Any]] = []
        self.handed: list[Event] = []
        self.rebuilt_with: list[Rebuilt] = []

    def begin(self, rebuild: bool = False) -> None:
        self._note("begin", [rebuild], self.ledger.begin(rebuild=rebuild))

    def ready(self, head: Checkpoint) -> None:
        self.ledger.ready(head)
        self._note("ready", [asdict(head)])

    def event(self, frame: dict[str, Any]) -> None:
        self._note("event", [asdict(event_of(frame))], self.ledger.event(event_of(frame)))

    def done(self, last_id: str) -> None:
        self.ledger.done(last_id)
        self._note("done", [last_id])

    def gap(self, gap: Gap) -> None:
        self.ledger.gap(gap)
        self._note("gap", [asdict(gap)])

    def rebuilt(self, turn: dict[str, Any] | None) -> None:
        rebuilt, waiting = self.ledger.rebuilt(turn_of(turn))
        told = list(rebuilt.new) if rebuilt is not None else []
        if rebuilt is not None:
            self.rebuilt_with.append(rebuilt)
        self._note("rebuilt", [turn], told, missed=rebuilt and rebuilt.missed, waiting=_short(waiting))
        for event in waiting:
            self._note("event", [asdict(event)], self.ledger.event(event))

    def give_up(self) -> None:
        told = self.ledger.give_up()
        self._note("giveUp", [], told or [], again=told is None)

    def _note(self, op: str, args: list[Any], told: list[Event] | None = None, **more: Any) -> None:
        self.handed += told or []
        ledger = self.ledger
        place = ledger.checkpoint
        self.steps.append(
            {
                "op": op,
                "args": args,
                "told": None if told is None else _short(told),
                "checkpoint": place and [place.id, place.seq, place.epoch],
                "hole": ledger.hole,
                "statistics": asdict(ledger.statistics),
                **more,
            }
        )


def _short(events: list[Event]) -> list[list[Any]]:
    return [[event.id, event.seq, event.type, event.replayed] for event in events]


class History:
    """Plays actions on a log and a reader. ``start``: what the reader began after, a number."""

    def __init__(self) -> None:
        self.log = Log()
        self.reader = Reader()
        self.connected = False
        self.unlogged_so_far = 0
        self.start: int | None = None

    def play(self, actions: list[str]) -> None:
        self.connect()
        for action in actions:
            if not self.connected:
                self.connect()
            getattr(self, action)()

    def finish(self) -> None:
        """One undisturbed connection."""
        if self.connected:
            self.cut()
        self.connect()
        for _ in range(len(self.log.frames) + 2):
            self.fetched()
            self.replay()
            self.live()

    def connect(self) -> None:
        reader, ledger = self.reader, self.reader.ledger
        reader.begin(rebuild=True)
        self.connected, self.fetching = True, False
        self.pushed: list[dict[str, Any]] = []
        self.sent: list[dict[str, Any]] = []
        self.head = self.log.head
        reader.ready(self.head)
        checkpoint = ledger.checkpoint
        self.replayed_to: int | None = None
        if checkpoint is None:
            self.fetching = True
        elif (checkpoint.seq or 0) < self.log.trimmed_to:
            oldest = self.log.after(0)[0]["id"] if self.log.after(0) else None
            reader.gap(Gap("trimmed", oldest, self.log.trimmed_to - (checkpoint.seq or 0)))
            self.fetching = True
        else:
            self.replayed_to = checkpoint.seq or 0

    def append(self, type_: str = "step") -> None:
        self.pushed.append(self.log.append(type_))

    def turn(self) -> None:
        self.append("session_created")

    def unlogged(self) -> None:
        self.unlogged_so_far += 1
        self.pushed.append(event_frame(None, None, f"unlogged {self.unlogged_so_far}"))

    def replay(self) -> None:
        """The next event of the replay, or its end."""
        if self.replayed_to is None:
            return
        missing = self.log.after(self.replayed_to)
        if missing and missing[0]["seq"] == self.replayed_to + 1:
            self.reader.event(missing[0])
            self.replayed_to = missing[0]["seq"]
            return
        last = self.log.frames[self.replayed_to - 1]["id"] if self.replayed_to else "0-0"
        self.reader.done(last)
        self.replayed_to = None

    def live(self) -> None:
        if self.pushed:
            frame = self.pushed.pop(0)
            self.sent.append(frame)
            self.reader.event(frame)

    def again(self) -> None:
        """A catch-up brings what was live already."""
        for frame in self.sent[-3:]:
            if frame["id"] is not None:
                self.reader.event(frame)

    def trim(self) -> None:
        """Never under a replay: a server reads a page before it is trimmed, or says so."""
        if self.replayed_to is None:
            self.log.trimmed_to = max(self.log.trimmed_to, len(self.log.frames) - 2)

    def fetched(self) -> None:
        if not self.fetching:
            return
        self.fetching = False
        turn = self.log.turn()
        if self.start is None:
            shown = turn["events"] if turn is not None else []
            self.start = shown[0]["seq"] - 1 if shown else self.head.seq
        self.reader.rebuilt(turn)

    def cut(self) -> None:
        self.connected = False
