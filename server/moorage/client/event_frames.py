"""What frames of an event log and ``GET …/turn`` say, checked. No I/O (PROTOCOL, "Event log frames")."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

Number = tuple[int, int]

_ID = re.compile(r"([0-9]{1,20})-([0-9]{1,20})\Z")


def number(text: object) -> Number | None:
    """An id ``<ms>-<n>`` as two numbers, which is how ids compare; None if it is not one.

    Both are ASCII decimals below 2^64 (PROTOCOL)."""
    match = _ID.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    first, second = int(match[1]), int(match[2])
    return (first, second) if first < 1 << 64 and second < 1 << 64 else None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place in a log: everything up to ``id`` is known. With ``seq`` and ``epoch`` a gap after it is exact.

    ``dataclasses.asdict`` and ``Checkpoint(**stored)`` carry it through any storage. Raises ``ValueError`` if
    ``id`` is not ``<ms>-<n>``."""

    id: str
    seq: int | None = None
    epoch: str | None = None

    def __post_init__(self) -> None:
        if number(self.id) is None:
            raise ValueError(f"not an event id: {self.id!r}")

    @property
    def number(self) -> Number:
        return number(self.id) or (0, 0)


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``id`` and ``seq`` are None for one that is not in the log (transient, or the log was down).

    ``at``: epoch milliseconds. ``key`` names a step: an event with a known key replaces the one before.
    ``replayed``: it came from the log after a reconnect, not live."""

    id: str | None
    seq: int | None
    type: str
    data: Any = None
    key: str | None = None
    at: int | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """``ws_ready``: where the log ended when the connection was registered."""

    head: Checkpoint


@dataclass(frozen=True, slots=True)
class Done:
    """``replay_done``: everything up to ``last_id`` was sent."""

    last_id: str


@dataclass(frozen=True, slots=True)
class Gap:
    """``replay_gap``. ``reason``: ``invalid``, ``epoch``, ``expired`` or ``trimmed``. ``oldest``: the oldest id
    still kept. ``missed``: how many events are gone, None if the server cannot know."""

    reason: str
    oldest: str | None = None
    missed: int | None = None


@dataclass(frozen=True, slots=True)
class Ping:
    """``ping``: wants a pong."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The latest turn of a session, running or ended.

    ``status``: ``queued``, ``running``, ``done`` (with ``result``) or ``failed`` (with ``error``). ``question``:
    the one that is open, else None. ``truncated``: the beginning of the turn is no longer kept. ``last``: the place
    of the last of ``events``."""

    task_id: str
    status: str
    input: Any
    result: Any
    error: str | None
    question: Any
    events: tuple[Event, ...]
    last: Checkpoint | None
    truncated: bool


Frame = Ready | Event | Done | Gap | Ping


def parse(text: str | bytes) -> Frame | None:
    """A frame, or None for junk and for types that this version does not know."""
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return frame_of(raw)


def frame_of(raw: object) -> Frame | None:
    """As :func:`parse`, of decoded JSON."""
    if not isinstance(raw, dict):
        return None
    match raw.get("type"):
        case "event":
            return _event(raw)
        case "ping":
            return Ping()
        case "ws_ready":
            head = _place(raw)
            return Ready(head) if head is not None else None
        case "replay_done":
            last = raw.get("lastEventId")
            return Done(last) if isinstance(last, str) and number(last) is not None else None
        case "replay_gap":
            oldest = _text(raw.get("oldest"))
            return Gap(str(raw.get("reason")), oldest, _count(raw.get("missed")))
    return None


def turn_of(raw: object) -> Turn | None:
    """The answer of ``GET …/turn``; None if it is not one."""
    if not isinstance(raw, dict) or not isinstance(raw.get("events"), list):
        return None
    frames = [frame_of(item) for item in raw["events"]]
    events = tuple(frame for frame in frames if isinstance(frame, Event) and frame.id is not None)
    return Turn(
        task_id=str(raw.get("taskId")),
        status=str(raw.get("status")),
        input=raw.get("input"),
        result=raw.get("result"),
        error=_text(raw.get("error")),
        question=raw.get("question"),
        events=events,
        last=_place(raw) if events else None,
        truncated=bool(raw.get("truncated")),
    )


def _event(raw: dict[str, Any]) -> Event | None:
    inner, id_, seq = raw.get("event"), raw.get("id"), raw.get("seq")
    if not isinstance(inner, dict) or not isinstance(inner.get("type"), str):
        return None
    if id_ is not None and (number(id_) is None or _count(seq) is None):
        return None
    at = inner.get("at")
    return Event(
        id=id_,
        seq=seq if id_ is not None else None,
        type=inner["type"],
        data=inner.get("data"),
        key=_text(inner.get("key")),
        at=at if isinstance(at, int) else None,
    )


def _place(raw: dict[str, Any]) -> Checkpoint | None:
    last = raw.get("lastEventId")
    if number(last) is None:
        return None
    return Checkpoint(str(last), _count(raw.get("lastSeq")), _text(raw.get("epoch")))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
