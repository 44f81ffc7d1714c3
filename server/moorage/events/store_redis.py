"""Logs in Redis: one round trip and one atomic step for each append, read and deletion.

The publish is part of the append's script. So the live channel carries a session's events in the order of its log,
whoever appends, and there is no moment at which an event is logged and nobody has been told.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import orjson

from moorage.errors import BackplaneReply, BackplaneUnavailable
from moorage.events.frames import Event, EventId, Head, event_json
from moorage.events.scripts import APPEND, DELETE, READ, Script
from moorage.events.store import PAGE_MAX_BYTES, Entry, SessionDeleted, Span, Stored
from moorage.storage.backplane import Backplane

PUBLISHES_MAX = 1000
"""Publishes in flight, those within appends too (PROTOCOL): beyond, the newest is dropped and counted."""

NUDGES_MAX = 10_000
"""Sessions whose readers elsewhere must be told that they have missed something."""


class RedisStore:
    """See :class:`~moorage.events.store.Store`. ``origin`` names this process in what it publishes."""

    def __init__(self, backplane: Backplane, *, origin: str, channel: str, maxlen: int, ttl_ms: int) -> None:
        self.on_up: Callable[[], None] = lambda: None
        self.on_dropped: Callable[[str], None] = lambda reason: None
        self._backplane = backplane
        self._origin = origin
        self._channel = channel
        self._maxlen = maxlen
        self._ttl_ms = ttl_ms
        self._number = 0
        self._publishes = 0
        self._nudges: dict[str, Stored] = {}
        self.envelope_start = b'{"origin":%b,' % orjson.dumps(origin)
        backplane.on_up.append(self._up)

    def close(self) -> None:
        """Hear no more of the backplane."""
        self._backplane.on_up.remove(self._up)

    @property
    def available(self) -> bool:
        return self._backplane.available

    def _up(self) -> None:
        # Ahead of everything else on the new connection: appends then need no second attempt by EVAL.
        for script in (APPEND, READ):
            self._backplane.command(b"SCRIPT", b"LOAD", script.text)
        self.on_up()

    def next_number(self) -> int:
        self._number += 1
        return self._number

    # -- commands ------------------------------------------------------------------------------------------
    async def append(
        self, session_id: str, event: Event, number: int, *, repeat_after: EventId | None = None
    ) -> Stored:
        publishes = self._publishes < PUBLISHES_MAX
        if not publishes:
            self.on_dropped("in_flight")
        arguments = self._append_arguments(session_id, event, publishes, repeat_after)
        self._publishes += publishes
        try:
            reply = await self._backplane.command(
                b"EVALSHA", APPEND.digest, 2, *arguments[:9], number, *arguments[9:]
            )
        except BackplaneReply as error:
            if not str(error).startswith("NOSCRIPT"):
                raise
            # Not by EVAL: others may have been appended by now, and the numbers of a process must rise.
            self._backplane.command(b"SCRIPT", b"LOAD", APPEND.text)
            raise BackplaneUnavailable("the script was not loaded") from None
        finally:
            self._publishes -= publishes
        if reply[0] == 0:
            raise SessionDeleted
        if reply[0] == 2:
            return Stored("", None, 0)
        stored = Stored(reply[3].decode(), _id(reply[1]), reply[2])
        if reply[4] < 0:
            self.on_dropped("failed")
        elif not publishes and len(self._nudges) < NUDGES_MAX:
            self._nudges[session_id] = stored
        if self._nudges and self._publishes < PUBLISHES_MAX // 2:
            self._nudge()
        return stored

    def _append_arguments(
        self, session_id: str, event: Event, publishes: bool, repeat_after: EventId | None
    ) -> list[bytes | str | int]:
        start = b'{"type":%b,"data":' % orjson.dumps(event.type)
        return [
            *self._keys(session_id),
            event.type,
            event.data,
            event.key or "",
            event.at,
            start,
            event.json[len(start) + len(event.data) :],
            self._origin,
            self._maxlen,
            self._ttl_ms,
            _new_epoch(),
            self._channel if publishes else b"",
            self._envelope(session_id) + b',"epoch":"',
            b"" if repeat_after is None else f"({repeat_after}",
        ]

    async def read(self, session_id: str, after: EventId | None, count: int) -> Span:
        while True:
            start = b"" if after is None else f"({after}"
            keys = self._keys(session_id)
            reply = await self._run(READ, *keys, _new_epoch(), count, start, PAGE_MAX_BYTES)
            if reply[0] == 0:
                raise SessionDeleted
            epoch, last = reply[1].decode(), _id(reply[3])
            if len(reply) == 4:
                return Span(Head(str(last), int(reply[2]), epoch), [], False)
            oldest = _entries(reply[4])
            first = (str(oldest[0].id), oldest[0].seq) if oldest else (None, None)
            entries = _entries(reply[5])
            more = bool(reply[5]) and _id(reply[5][-1][0]) < last
            if entries or not more:
                return Span(Head(str(last), int(reply[2]), epoch, *first), entries, more)
            after = _id(reply[5][-1][0])

    async def delete(self, session_id: str) -> None:
        envelope = self._envelope(session_id) + b',"deleted":true}'
        await self._run(DELETE, *self._keys(session_id), self._ttl_ms, self._channel, envelope)

    async def _run(self, script: Script, *arguments: bytes | str | int) -> Any:
        try:
            return await self._backplane.command(b"EVALSHA", script.digest, 2, *arguments)
        except BackplaneReply as error:
            if not str(error).startswith("NOSCRIPT"):
                raise
            return await self._backplane.command(b"EVAL", script.text, 2, *arguments)

    # -- the live channel ----------------------------------------------------------------------------------
    def tell(self, session_id: str, event: bytes) -> None:
        self._publish(self._envelope(session_id) + b',"event":%b}' % event)

    def _nudge(self) -> None:
        """Readers elsewhere look into the log when they are told of a number that they do not have."""
        nudges, self._nudges = self._nudges, {}
        for session_id, (epoch, id, seq) in nudges.items():
            where = f',"epoch":"{epoch}","id":"{id}","seq":{seq}}}'
            self._publish(self._envelope(session_id) + where.encode())

    def _publish(self, payload: bytes) -> None:
        if self._publishes >= PUBLISHES_MAX:
            self.on_dropped("in_flight")
            return
        self._publishes += 1
        self._backplane.publish(self._channel, payload).add_done_callback(self._published)

    def _published(self, reply: asyncio.Future[int]) -> None:
        self._publishes -= 1
        if reply.cancelled():
            return
        error = reply.exception()
        if error is not None:
            self.on_dropped("unavailable" if isinstance(error, BackplaneUnavailable) else "failed")

    def _envelope(self, session_id: str) -> bytes:
        return self.envelope_start + b'"sessionId":' + orjson.dumps(session_id)

    @staticmethod
    def _keys(session_id: str) -> tuple[str, str]:
        stream = f"moorage:events:{{{session_id}}}"
        return stream, f"{stream}:meta"


def _new_epoch() -> str:
    """Offered with every append and read, taken by the first one of a log. It only has to be another one each time."""
    return f"{random.getrandbits(48):012x}"


def _id(raw: bytes) -> EventId:
    ms, _, n = raw.partition(b"-")
    return EventId(int(ms), int(n))


def _entries(raw: list[Any]) -> list[Entry]:
    """What others may have written into the stream is left out."""
    entries = []
    for id, fields in raw:
        try:
            _, seq, _, kind, _, data, _, key, _, at = fields
            entries.append(Entry(_id(id), int(seq), event_json(kind, data, key, at)))
        except ValueError:
            continue
    return entries
