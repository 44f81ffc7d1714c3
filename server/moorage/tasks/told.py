"""What the log already says of a task: for a worker that takes it over, and for whoever rebuilds a turn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from moorage.errors import BackplaneError, BackplaneUnavailable
from moorage.events.frames import EventId
from moorage.events.log import EventLog, Head, SessionDeleted
from moorage.storage.tasks import Record

PAGE = 200
"""Events of one read; the log bounds its bytes."""

TURN_PAGES = 4
"""Pages in a turn: some megabytes. What follows is read by whoever resumes after the last event of the turn."""

SCAN_PAGES = 100
"""Pages looked through for one event, whatever others append to the session meanwhile."""

TRIES = 3
"""Reads that may begin anew because the log was trimmed under them."""

Events = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Told:
    """``events``: event frames of a turn, from its ``session_created`` unless ``truncated``. ``last_id`` and
    ``last_seq``: of the last of them; without any, after which its events will come."""

    events: Events
    truncated: bool
    last_id: str
    last_seq: int
    epoch: str


def before(event_id: str) -> str:
    """The largest id that is smaller: what to read after so that ``event_id`` comes first."""
    found = EventId.parse(event_id)
    if found is None or found <= (0, 0):
        return "0-0"
    return f"{found.ms}-{found.n - 1}" if found.n else f"{found.ms - 1}-{2**64 - 1}"


async def turn(events: EventLog, record: Record) -> Told:
    """What is kept of the turn of ``record``. Raises BackplaneError, SessionDeleted."""
    for _ in range(TRIES):
        head = await events.head(record.session_id)
        if record.first_id is not None and record.first_seq is not None:
            found = await _read(events, record, record.first_id, record.first_seq, head, TURN_PAGES)
            if found:
                return _told(found, False, head)
        kept = await _kept(events, record, head, TURN_PAGES if record.first_id else SCAN_PAGES)
        if kept is None:
            continue
        if record.first_id is not None:
            return _told(kept, True, head)
        return _from_beginning(kept, record, head)
    raise BackplaneUnavailable("the log is trimmed faster than it can be read")


async def has(events: EventLog, record: Record, type: str, name: str, value: str) -> bool:
    """The log has an event of ``type`` whose data has ``value`` at ``name``. False also while it is away: what is
    appended then is not logged either."""
    try:
        for _ in range(TRIES):
            head = await events.head(record.session_id)
            kept = await _kept(events, record, head, SCAN_PAGES)
            if kept is not None:
                return any(_is(frame, type, name, value) for frame in kept)
    except (BackplaneError, SessionDeleted):
        pass
    return False


def _is(frame: dict[str, Any], type: str, name: str, value: str) -> bool:
    event = frame["event"]
    data = event.get("data")
    return event.get("type") == type and isinstance(data, dict) and data.get(name) == value


async def _kept(events: EventLog, record: Record, head: Head, pages: int) -> Events | None:
    """From the oldest kept event on; None: it went meanwhile."""
    if head.oldest is None or head.oldest_seq is None:
        return []
    return await _read(events, record, head.oldest, head.oldest_seq, head, pages)


async def _read(
    events: EventLog, record: Record, first_id: str, first_seq: int, head: Head, pages: int
) -> Events | None:
    """From that event on; None: it is gone."""
    found: Events = []
    after: str | None = before(first_id)
    last_seq = first_seq - 1
    for _ in range(pages):
        if after is None:
            break
        page = await events.page(record.session_id, after, PAGE, last_seq=last_seq, epoch=head.epoch)
        if page.gap is not None:
            return None
        found += page.events
        after = page.next
        last_seq = found[-1]["seq"] if found else last_seq
    return found


def _from_beginning(kept: Events, record: Record, head: Head) -> Told:
    """Of all events that are kept, those of a turn whose ``session_created`` has no known place: it is not noted
    yet, or the log was away when the task began. Then the turn begins where the log says that it was away."""
    start = hole = None
    for number, frame in enumerate(kept):
        if frame["event"]["type"] == "session_created":
            hole = None
            if _is(frame, "session_created", "taskId", record.id):
                start = number
        elif frame["event"]["type"] == "unlogged":
            hole = number
    if start is not None:
        return _told(kept[start:], False, head)
    last = _told(kept, False, head)
    if record.attempts and hole is not None:
        return _told(kept[hole:], True, head)
    return Told([], record.attempts > 0, last.last_id, last.last_seq, head.epoch)


def _told(found: Events, truncated: bool, head: Head) -> Told:
    last_id, last_seq = (found[-1]["id"], found[-1]["seq"]) if found else (head.last_id, head.last_seq)
    return Told(found, truncated, last_id, last_seq, head.epoch)
