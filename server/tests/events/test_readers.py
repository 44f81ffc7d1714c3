"""What all readers have in common: pings, silence, slowness, the pace of a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import Mock

import orjson

from moorage.events.frames import PING, Frame, Resume
from moorage.events.log import EventLog
from moorage.events.readers.base import ROOM_BYTES, TICKS, Limits
from moorage.events.readers.socketio import SocketIoReader
from moorage.events.readers.sse import SseReader
from moorage.events.readers.websocket import WebSocketReader

from .watching import Watcher

Until = Callable[..., Awaitable[None]]
FAST = Limits(ping_s=0.03, max_buffer=1000, queued_max_s=0.1)


class Wire:
    """A connection; ``stuck``: nothing leaves it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.stuck = False
        self.code: int | None = None

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def push(self, packet: Any) -> None:
        self.written.append(packet.wire)

    def unsent(self) -> int:
        return sum(map(len, self.written)) if self.stuck else 0

    def close(self, code: int) -> None:
        self.code = code


class Clock:
    """A loop's time by hand: when this process stands still, nobody was silent."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        return Mock()


async def test_pings_until_it_ends(until: Until) -> None:
    reader = Watcher("s", limits=FAST)
    await until(lambda: len(reader.of("ping")) >= 3)
    reader.end(None)
    count = len(reader.frames)
    await asyncio.sleep(0.05)
    assert len(reader.frames) == count


async def test_a_silent_client_is_ended_and_a_speaking_one_is_not(until: Until) -> None:
    silent, speaking = Wire(), Wire()
    one = WebSocketReader("s", FAST, silent, lambda q, a: None)
    await until(lambda: one.ended)
    assert silent.code == 1011
    other = WebSocketReader("s", Limits(ping_s=0.2), speaking, lambda q, a: None)
    other._timer.cancel()
    other._loop = clock = Clock()  # type: ignore[assignment]
    other.heard()
    write = speaking.write

    def answered(data: bytes) -> None:
        write(data)
        other.take_text(b'{"type":"pong"}')

    other._send = answered
    for _ in range(5 * TICKS):
        clock.now += 0.2 / TICKS
        other._tick()
    assert len(speaking.written) == 5  # two more than silence would allow
    assert not other.ended
    other.end(None)


async def test_what_is_unsent_for_too_long_is_slow(until: Until) -> None:
    wire = Wire()
    reader = SocketIoReader("s", Limits(ping_s=0.03, queued_max_s=0.1), wire)
    await until(lambda: len(wire.written) >= 8)  # pings that leave
    assert not reader.ended
    wire.stuck = True
    await until(lambda: reader.ended)
    assert orjson.loads(wire.written[-1][wire.written[-1].index(b"[") :])[1] == {
        "type": "closed", "code": 4408, "sessionId": "s",
    }  # fmt: skip


async def test_too_much_unsent_is_slow_and_nothing_is_skipped_before(until: Until) -> None:
    reader = SseReader("s", FAST, resumes=False)
    for n in range(30):
        reader.send(Frame.control({"type": "event", "n": n, "x": "x" * 100}))
    assert not reader.ended  # never inside of a write
    await until(lambda: reader.ended)
    wire = Wire()
    socket = WebSocketReader("s", FAST, wire, lambda q, a: None)
    for n in range(5):
        socket.send(Frame.control({"type": "event", "n": n}))
    socket.transport_full()
    socket.send(PING)
    await until(lambda: socket.ended)
    assert wire.code == 4408
    assert len(wire.written) == 6
    socket.send(PING)
    assert len(wire.written) == 6


async def test_a_replay_waits_for_a_slow_reader(log: EventLog, until: Until) -> None:
    for n in range(200):
        await log.append("s", "t", n)
    reader = Watcher("s")
    reader.stuck = ROOM_BYTES + 1
    serving = asyncio.create_task(log.serve(reader, Resume("0-0")))
    await until(lambda: len(reader.events) >= 100)
    await asyncio.sleep(0.05)
    assert len(reader.events) == 100
    reader.stuck = 0
    await asyncio.wait_for(serving, 10)
    assert reader.data == list(range(200))
    gone = Watcher("s")
    gone.stuck = ROOM_BYTES + 1
    serving = asyncio.create_task(log.serve(gone, Resume("0-0")))
    await until(lambda: len(gone.events) >= 100)
    gone.end(None)
    await asyncio.wait_for(serving, 10)
    assert len(gone.events) == 100


async def test_websocket_messages() -> None:
    replies: list[Any] = []
    wire = Wire()
    reader = WebSocketReader("s", Limits(), wire, lambda question, answer: replies.append((question, answer)))
    for raw in (b"", b"{", b"[]", b"null", b'{"type":"pong"}', b'{"type":"nobody knows"}', b'{"type":"reply"}',
                b'{"type":"reply","questionId":5,"answer":1}', b'{"type":"reply","questionId":"q"}', b"\xff",
                b'{"type":"reply","questionId":"q","answer":null}'):  # fmt: skip
        reader.take_text(raw)
    assert replies == [("q", None)]
    assert not reader.ended
    reader.take_binary(b"x")
    assert wire.code == 1003


async def test_sse_chunks_join_and_end() -> None:
    reader = SseReader("s", Limits(), resumes=True)
    for n in range(10):
        reader.send(Frame.control({"n": n}))
    got = []

    async def take() -> None:
        async for chunk in reader.chunks():
            got.append(chunk)  # noqa: PERF401 (what came so far is looked at)

    taking = asyncio.create_task(take())
    await asyncio.sleep(0.01)
    assert len(got) == 1 and got[0].count(b"\n\n") == 10
    reader.send(Frame.control({"n": 10}))
    reader.end(4404)
    await asyncio.wait_for(taking, 5)
    assert b"".join(got).count(b"\n\n") == 11
    assert reader.unsent() == 0
