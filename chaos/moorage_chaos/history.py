"""What happened in one run, as a list of timed events; kept in memory and written as JSON lines.

A line is ``{"t": monotonic ns, "wall": epoch s, "process", "op", "phase": "invoke|ok|fail|info", "value",
"id"?}``. ``id`` joins an operation's ``invoke`` with its end: ``ok`` (it happened), ``fail`` (it certainly
did not), ``info`` (it may have). An ``info`` without ``id`` is a note: something seen, or done by the harness
itself. An invoke without an end is an operation that nobody accounted for. ``t`` is CLOCK_MONOTONIC, so files
of several processes of one machine can be joined. The first line is the header (``{"format": 1, "row",
"seed", "driver", …}``): a history can be judged again alone.

Operations and notes that every row uses:

==============  =======  =====================================================================================
op              kind     value
==============  =======  =====================================================================================
``call``        pair     caller, method, call, timeoutMs, callerReplica -> result | code, delivered, error
``run``         pair     a daemon runs a handler: daemon, call, requestId -> what it returned
``connect``     pair     client, kind -> sid, replica, recovered
``register``    pair     client, method -> scope
``emit``        pair     event, filter, body, status
``down``        note     a connection ended: client, sid, replica, cause (``cut``, ``close``, ``kill`` by us;
                         else what the client saw)
``cut``         note     we cut the connection of a client of ours: client
``received``    note     client, event, body, seq
``append``      pair     an event was reported: session, type, mark, key, transient -> id, seq
``turn``        pair     a task was started: session, reader -> task
``task``        note     what ``GET /v1/tasks/{id}`` said in the end: task, status, result, attempts
``reader``      note     a reader of a session's log begins: reader, session, kind
``event``       note     a reader rendered an event: reader, id, seq, type, mark, key, from (``live``, ``turn``)
``gap``         note     a reader was told of one: reader, reason, missed
``cancelled``   note     a daemon was told that a call was cancelled: daemon, requestId, call
``fault``       pair     kind, replica, … -> evidence that it bit
``death``       note     the driver saw a process end: replica, code
``alive``       note     the driver saw a replica ready: replica
``lag``         note     the harness's own event loop was late: ms
==============  =======  =====================================================================================
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

Phase = Literal["invoke", "ok", "fail", "info"]
FORMAT = 1


@dataclass(slots=True)
class Event:
    """One line of a history."""

    t: int
    wall: float
    process: str
    op: str
    phase: Phase
    value: dict[str, Any]
    id: int | None = None

    def line(self) -> bytes:
        row: dict[str, Any] = {
            "t": self.t,
            "wall": self.wall,
            "process": self.process,
            "op": self.op,
            "phase": self.phase,
            "value": self.value,
        }
        if self.id is not None:
            row["id"] = self.id
        return orjson.dumps(row, default=str, option=orjson.OPT_NON_STR_KEYS)


@dataclass(slots=True)
class Pair:
    """An operation: its invoke and, once it ended, its end."""

    invoke: Event
    end: Event | None = None

    @property
    def value(self) -> dict[str, Any]:
        return self.invoke.value

    @property
    def result(self) -> dict[str, Any]:
        return self.end.value if self.end else {}

    @property
    def phase(self) -> Phase | None:
        return self.end.phase if self.end else None

    @property
    def t0(self) -> int:
        return self.invoke.t

    @property
    def t1(self) -> int | None:
        return self.end.t if self.end else None

    @property
    def ms(self) -> float | None:
        """Milliseconds from invoke to end."""
        return (self.end.t - self.invoke.t) / 1e6 if self.end else None


def _event_of(row: dict[str, Any]) -> Event:
    return Event(row["t"], row["wall"], row["process"], row["op"], row["phase"], row["value"], row.get("id"))


class Operation:
    """An operation that was invoked; exactly one of ok, fail, info ends it (later ends are ignored)."""

    __slots__ = ("_history", "done", "event", "good")

    def __init__(self, history: History, event: Event) -> None:
        self._history = history
        self.event = event
        self.done = False
        self.good = False
        """It ended ``ok``."""

    @property
    def id(self) -> int:
        assert self.event.id is not None
        return self.event.id

    def ok(self, **value: Any) -> None:
        self._end("ok", value)

    def fail(self, **value: Any) -> None:
        """It certainly did not happen."""
        self._end("fail", value)

    def info(self, **value: Any) -> None:
        """It may have happened."""
        self._end("info", value)

    def _end(self, phase: Phase, value: dict[str, Any]) -> None:
        if not self.done:
            self.done = True
            self.good = phase == "ok"
            self._history.add(self.event.op, phase, value, process=self.event.process, id=self.event.id)


@dataclass
class History:
    """Events of one row in the order they were recorded."""

    header: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    now: Callable[[], int] = time.monotonic_ns
    _next: int = 0

    def add(
        self,
        op: str,
        phase: Phase,
        value: dict[str, Any],
        *,
        process: str = "harness",
        id: int | None = None,
        t: int | None = None,
    ) -> Event:
        event = Event(self.now() if t is None else t, time.time(), process, op, phase, value, id)
        self.events.append(event)
        return event

    def begin(self, op: str, *, process: str = "harness", **value: Any) -> Operation:
        """Record the invoke of an operation; end it through what is returned."""
        self._next += 1
        return Operation(self, self.add(op, "invoke", value, process=process, id=self._next))

    def note(self, op: str, *, process: str = "harness", t: int | None = None, **value: Any) -> Event:
        """Record something that was seen; ``t``: monotonic ns, if it was seen at another moment than now."""
        return self.add(op, "info", value, process=process, t=t)

    def record(
        self,
        op: str,
        t0: int,
        t1: int | None,
        value: dict[str, Any],
        result: dict[str, Any],
        *,
        process: str,
        phase: Phase = "ok",
    ) -> None:
        """Record an operation that was timed elsewhere (another process of this machine); ``t1`` None: it has no
        end."""
        self._next += 1
        self.add(op, "invoke", value, process=process, id=self._next, t=t0)
        if t1 is not None:
            self.add(op, phase, result, process=process, id=self._next, t=t1)

    def join(self, lines: Iterable[bytes]) -> None:
        """Add notes that another process of this machine has recorded. Raises ValueError for what is none."""
        for line in lines:
            try:
                event = _event_of(orjson.loads(line))
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"no history event: {line[:100]!r}") from error
            if event.id is not None:
                raise ValueError(f"an operation, no note: {line[:100]!r}")
            self.events.append(event)

    def pairs(self, op: str, where: Callable[[Pair], bool] | None = None) -> list[Pair]:
        """Operations named ``op`` in the order of their invokes, those without an end included."""
        open_: dict[int, Pair] = {}
        found: list[Pair] = []
        for event in self.events:
            if event.op != op or event.id is None:
                continue
            if event.phase == "invoke":
                pair = Pair(event)
                open_[event.id] = pair
                found.append(pair)
            elif event.id in open_:
                open_[event.id].end = event
        return [pair for pair in found if where(pair)] if where else found

    def notes(self, op: str, **match: Any) -> list[Event]:
        """Notes named ``op`` whose value carries all of ``match``."""
        return [
            event
            for event in self.events
            if event.op == op and event.id is None and all(event.value.get(k) == v for k, v in match.items())
        ]

    def counts(self, op: str = "call") -> dict[str, int]:
        """``{"ok", "failed", "unknown"}``: ends of the operations; one without an end counts as unknown."""
        phases = [pair.phase for pair in self.pairs(op)]
        return {
            "ok": phases.count("ok"),
            "failed": phases.count("fail"),
            "unknown": phases.count("info") + phases.count(None),
        }

    def lines(self) -> Iterator[bytes]:
        yield orjson.dumps({"format": FORMAT, **self.header}, default=str)
        for event in self.events:
            yield event.line()

    def save(self, path: Path) -> None:
        """Write the whole file or none of it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + f".{os.getpid()}.part")
        part.write_bytes(b"\n".join(self.lines()) + b"\n")
        part.replace(path)

    @classmethod
    def parse(cls, lines: Iterable[bytes]) -> History:
        """A history from its lines. Raises ValueError with the number of the line that is no event."""
        history = cls()
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = orjson.loads(line)
                if number == 1:
                    if row["format"] != FORMAT:
                        raise ValueError(f"format {row['format']!r} is not {FORMAT}")
                    history.header = {key: value for key, value in row.items() if key != "format"}
                    continue
                event = _event_of(row)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"line {number} is no history event: {error}") from error
            history.events.append(event)
            history._next = max(history._next, event.id or 0)
        return history

    @classmethod
    def load(cls, path: Path) -> History:
        with path.open("rb") as file:
            return cls.parse(file)
