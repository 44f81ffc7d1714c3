"""Emits to another replica: what is sent, what is timed, what ends the run. No server, no time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import orjson
import pytest

from moorage_chaos.bench import remote
from moorage_chaos.bench.client import BenchError, HttpConnection, SocketClient
from moorage_chaos.bench.remote import Stream


class Link(HttpConnection):
    """Answers at once, and tells the socket what the other replica would."""

    def __init__(self, socket: SocketClient, status: int = 202, copies: int = 1) -> None:
        super().__init__()
        self.socket, self.status, self.copies = socket, status, copies
        self.requests: list[bytes] = []

    @property
    def standing(self) -> bool:
        return True

    @property
    def idle(self) -> bool:
        return True

    def request(self, data: bytes, done: Callable[[int, bytes], None]) -> None:
        self.requests.append(data)
        done(self.status, b"said why")
        body = orjson.loads(data.partition(b"\r\n\r\n")[2])["body"]
        for _ in range(self.copies):
            self.socket.on_event(b"42" + orjson.dumps(["ephemeral", body, "1-0"]))

    def close(self) -> None:
        self.requests.append(b"closed")


class Busy(Link):
    @property
    def idle(self) -> bool:
        return not self.requests


async def test_every_emit_is_timed_once() -> None:
    socket = SocketClient({})
    link = Link(socket)
    stream = Stream(socket, "token")
    stream.use([link])
    await stream.run(0.03, rate=2000)
    assert len(stream.latencies) == len(link.requests) == 60
    assert b"Bearer token" in link.requests[0]
    numbers = [orjson.loads(data.partition(b"\r\n\r\n")[2])["body"]["n"] for data in link.requests]
    assert numbers == list(range(1, len(numbers) + 1))
    stream.close()
    assert link.requests[-1] == b"closed"


async def test_other_events_are_not_ours() -> None:
    socket = SocketClient({})
    stream = Stream(socket, "token")
    socket.on_event(b'42["update",{"type":"bench","n":1}]')
    socket.on_event(b'42["ephemeral",{"type":"activity"}]')
    assert stream.latencies == []


@pytest.mark.parametrize(
    ("link", "seconds", "why"),
    [
        (lambda socket: Link(socket, status=500), 0.05, "500 b'said why'"),
        (lambda socket: Link(socket, copies=2), 0.05, "arrived twice"),
        # One emit: on a machine that stands still meanwhile, others could not even be sent in time.
        (lambda socket: Link(socket, copies=0), 0.001, "did not arrive within"),
        (Busy, 0.05, "could not be sent"),
        (HttpConnection, 0.05, "no connection to post by is left"),
    ],
)
async def test_what_ends_the_run(
    monkeypatch: pytest.MonkeyPatch, link: Callable[..., HttpConnection], seconds: float, why: str
) -> None:
    monkeypatch.setattr(remote, "SETTLE_S", 0.01)
    socket = SocketClient({})
    made = link() if link is HttpConnection else link(socket)
    stream = Stream(socket, "token")
    stream.use([made])
    with pytest.raises(BenchError, match=why):
        await asyncio.wait_for(stream.run(seconds), 5)
