"""Shapes of the event log: ids and their order, events, frames for every carrier. No I/O.

PROTOCOL, "Event log frames", has every shape; ids are compared as two numbers, never as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from moorage.cluster.packets import TEXT, Encoded, frame
from moorage.errors import EventTooLarge, InvalidEvent
from moorage.storage.state import plain

RESERVED_TYPES = frozenset({"session_created", "task_result", "question", "unlogged"})
"""Types that only Moorage itself may append (PROTOCOL, ``POST …/events``)."""

TYPE_MAX, KEY_MAX = 256, 256
"""Characters, as for method names and ids."""

ID_MAX_CHARS = 128
"""Two numbers below 2^64 take 41; leading zeros are numbers too, but not without end."""

_ID = re.compile(r"([0-9]+)-([0-9]+)", re.ASCII)


class EventId(NamedTuple):
    """``<ms>-<n>``, ordered as two numbers."""

    ms: int
    n: int

    @classmethod
    def parse(cls, text: str) -> EventId | None:
        """None: not two ASCII decimals below 2^64 with a dash between them."""
        found = _ID.fullmatch(text) if len(text) <= ID_MAX_CHARS else None
        if found is None:
            return None
        ms, n = int(found[1]), int(found[2])
        return cls(ms, n) if ms < 2**64 and n < 2**64 else None

    def __str__(self) -> str:
        return f"{self.ms}-{self.n}"


START = EventId(0, 0)
"""The beginning of every log."""


class Resume(NamedTuple):
    """Where a reader stopped. ``after`` as the client sent it; a gap is exact with ``last_seq`` and ``epoch``."""

    after: str
    last_seq: int | None = None
    epoch: str | None = None

    @classmethod
    def parse(cls, after: str, last_seq: object = None, epoch: object = None) -> Resume:
        """From what a client sent; a ``last_seq`` or ``epoch`` that cannot be one counts as not given."""
        if isinstance(last_seq, str) and re.fullmatch(r"[0-9]{1,19}", last_seq, re.ASCII):
            last_seq = int(last_seq)
        known = type(last_seq) is int and last_seq >= 0
        named = isinstance(epoch, str) and epoch != ""
        return cls(after, last_seq if known else None, epoch if named else None)  # type: ignore[arg-type]

    @classmethod
    def from_sse(cls, last_event_id: str) -> Resume:
        """From ``Last-Event-ID``: ``<epoch>:<id>:<seq>``, or a bare id."""
        parts = last_event_id.split(":")
        if len(parts) != 3:
            return cls(last_event_id)
        return cls.parse(parts[1], parts[2], parts[0])


class Event(NamedTuple):
    """What was reported, checked and encoded. ``at``: epoch milliseconds. ``data`` and ``json`` are JSON texts,
    ``json`` that of the whole ``{type, data, key?, at}``."""

    type: str
    data: bytes
    key: str | None
    at: int
    json: bytes


def make_event(kind: object, data: Any, key: object, at: int, max_bytes: int) -> Event:
    """Check and encode. Raises :class:`InvalidEvent` and, for ``data`` over ``max_bytes`` of JSON,
    :class:`EventTooLarge`."""
    if not isinstance(kind, str) or not 0 < len(kind) <= TYPE_MAX:
        raise InvalidEvent(f"type must be text of 1 to {TYPE_MAX} characters")
    if key is not None and (not isinstance(key, str) or not 0 < len(key) <= KEY_MAX):
        raise InvalidEvent(f"key must be text of 1 to {KEY_MAX} characters")
    try:
        text, kind_text = plain(data, "data"), plain(kind, "type")
        key_text = b"" if key is None else b',"key":' + plain(key, "key")
    except ValueError as error:
        raise InvalidEvent(str(error)) from None
    if len(text) > max_bytes:
        raise EventTooLarge(len(text), max_bytes)
    return Event(kind, text, key, at, b'{"type":%b,"data":%b%b,"at":%d}' % (kind_text, text, key_text, at))


def event_json(kind: bytes, data: bytes, key: bytes, at: bytes) -> bytes:
    """``{type, data, key?, at}`` from the fields of a stream entry. Raises ValueError if they are not ours."""
    orjson.loads(data)
    key_text = b',"key":' + orjson.dumps(key.decode()) if key else b""
    return b'{"type":%b,"data":%b%b,"at":%d}' % (orjson.dumps(kind.decode()), data, key_text, int(at))


class Frame:
    """One frame, encoded for each carrier at most once, however many readers get it.

    ``id`` and ``seq``: of a logged event, else None.
    """

    __slots__ = ("_socketio", "_sse", "_websocket", "id", "json", "seq")

    def __init__(self, json: bytes, id: EventId | None = None, seq: int | None = None) -> None:
        self.json = json
        self.id = id
        self.seq = seq
        self._websocket: bytes | None = None
        self._sse: tuple[str, bytes] | None = None
        self._socketio: tuple[str, Encoded] | None = None

    @classmethod
    def event(cls, event: bytes, id: EventId | None = None, seq: int | None = None) -> Frame:
        """An ``event`` frame around the JSON of an event; without id: not logged."""
        if id is None or seq is None:
            return cls(b'{"type":"event","id":null,"seq":null,"event":%b}' % event)
        head = f'{{"type":"event","id":"{id.ms}-{id.n}","seq":{seq},"event":'.encode()
        return cls(head + event + b"}", id, seq)

    @classmethod
    def control(cls, content: Mapping[str, Any]) -> Frame:
        """Any other frame."""
        return cls(orjson.dumps(content))

    @property
    def websocket(self) -> bytes:
        """The RFC 6455 text frame."""
        if self._websocket is None:
            self._websocket = frame(TEXT, self.json)
        return self._websocket

    def sse(self, epoch: str) -> bytes:
        """The Server-Sent Event; a logged event has the id ``<epoch>:<id>:<seq>``."""
        if self._sse is None or self._sse[0] != epoch:
            head = b"" if self.id is None else f"id: {epoch}:{self.id}:{self.seq}\n".encode()
            self._sse = (epoch, b"%bdata: %b\n\n" % (head, self.json))
        return self._sse[1]

    def socketio(self, session_id: str) -> Encoded:
        """The packet of ``session-event``, with ``sessionId``."""
        if self._socketio is None or self._socketio[0] != session_id:
            payload = b'%b,"sessionId":%b}' % (self.json[:-1], orjson.dumps(session_id))
            self._socketio = (session_id, Encoded(b'2["session-event",%b]' % payload))
        return self._socketio[1]


PING = Frame(b'{"type":"ping"}')


@dataclass(frozen=True, slots=True)
class Head:
    """Where a log stands. An empty one: ``0-0`` and 0. ``oldest``, ``oldest_seq``: the oldest kept entry, or None."""

    last_id: str
    last_seq: int
    epoch: str
    oldest: str | None = None
    oldest_seq: int | None = None

    @property
    def last(self) -> EventId:
        """``last_id`` as numbers."""
        return EventId.parse(self.last_id) or START


def ready_frame(session_id: str, last: EventId, last_seq: int, epoch: str) -> Frame:
    """``ws_ready``, with the place it names."""
    content = {
        "type": "ws_ready",
        "sessionId": session_id,
        "lastEventId": str(last),
        "lastSeq": last_seq,
        "epoch": epoch,
    }
    return Frame(orjson.dumps(content), last, last_seq)
