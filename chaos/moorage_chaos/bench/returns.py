"""Broadcasts at a steady rate to clients that are cut again and again, and through a Redis that stands still."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import orjson

from moorage_chaos.bench.client import (
    BenchError,
    HttpConnection,
    SocketClient,
    connect,
    http_request,
    open_http,
)
from moorage_chaos.bench.servers import PATH

RATE = 1000
"""[emits/s] Of issue 7: "200 recoveries under 1 kHz broadcast", "Redis stopped 3 s under 1 kHz"."""
LINKS = 16
"""[connections] HTTP, that the emits go out by."""
CLIENTS = 8
RETURNS = 25
"""Of each client: 200 together."""
AWAY_S = (0.05, 0.3)
"""[s] Least and most that a client is away: Node must have seen the loss to keep the session."""
UP_S = (0.05, 0.2)
"""[s] Least and most that it stays."""
STOP_S = 3.0
"""[s] That Redis stands still."""
SETTLE_S = 10.0
"""[s] Bound of the wait for the last copies."""
LOOK_S = 0.01
"""[s] Between two looks of that wait."""


@dataclass(slots=True)
class Receiver:
    """What a client has got of a sequence, over all its connections; and what it remembers for its return."""

    auth: dict[str, Any]
    numbers: list[int] = field(default_factory=list)
    pid: str | None = None
    offset: str | None = None
    returns: int = 0
    refused: int = 0
    socket: SocketClient | None = None

    async def connect(self, port: int) -> None:
        """Connect, or return. Raises :class:`BenchError`."""
        known = {"pid": self.pid, "offset": self.offset} if self.pid is not None else {}
        self.socket, hello = await connect(
            port,
            PATH,
            self.auth | {name: value for name, value in known.items() if value is not None},
            on_event=self._got,
        )
        if self.pid is not None:
            self.returns += 1
            self.refused += hello.get("pid") != self.pid
        self.pid = hello.get("pid")

    def _got(self, data: bytes) -> None:
        if data[2:3] != b"[":
            return
        event = orjson.loads(data[2:])
        if isinstance(event[-1], str):
            self.offset = event[-1]
        body = event[1].get("body", event[1]) if len(event) > 1 and isinstance(event[1], dict) else {}
        if "n" in body:
            self.numbers.append(body["n"])

    def cut(self) -> None:
        """Drop the connection without a word."""
        if self.socket is not None:
            self.socket.close()

    def lost(self, sent: set[int]) -> int:
        return len(sent - set(self.numbers))

    @property
    def doubled(self) -> int:
        return len(self.numbers) - len(set(self.numbers))

    def disorder(self, other: Receiver) -> int:
        """Neighbours that ``other`` got in the opposite order.

        The numbers say nothing of it: they go out by several connections, and the server takes them as they come.
        """
        place = {number: index for index, number in enumerate(other.numbers)}
        places = [place[number] for number in self.numbers if number in place]
        return sum(a > b for a, b in pairwise(places))


class Poster:
    """Posts numbered broadcasts at a rate; ``sent`` are those that were taken."""

    def __init__(self, port: int, token: str, event: str) -> None:
        self._port, self._token, self._event = port, token, event
        self._links: list[HttpConnection] = []
        self._number = 0
        self.sent: set[int] = set()
        self.failure = ""

    async def run(self, until: asyncio.Event, rate: int = RATE) -> None:
        """Post until ``until`` is set; later when the server cannot keep up. Raises :class:`BenchError`."""
        self._links = [await open_http(self._port) for _ in range(LINKS)]
        try:
            began, posted = time.perf_counter(), 0
            while not until.is_set() and not self.failure:
                now = time.perf_counter()
                while began + posted / rate <= now and self._post():
                    posted += 1
                await asyncio.sleep(0.001)
            for _ in range(int(SETTLE_S / LOOK_S)):
                if all(link.idle for link in self._links) or self.failure:
                    break
                await asyncio.sleep(LOOK_S)
        finally:
            for link in self._links:
                link.close()
        if self.failure:
            raise BenchError(self.failure)

    def _post(self) -> bool:
        link = next((link for link in self._links if link.idle), None)
        if link is None:
            return False
        self._number += 1
        number = self._number
        body = {"t": "bench", "type": "bench", "n": number}
        message = {"event": self._event, "filter": {"type": "user-scoped-only"}, "body": body}

        def answered(status: int, answer: bytes) -> None:
            if status == 202:
                self.sent.add(number)
            else:
                self.failure = self.failure or f"POST /v1/emit: {status} {answer[:300]!r}"

        link.request(http_request("POST", "/v1/emit", self._token, orjson.dumps(message)), answered)
        return True


async def _all_there(receivers: Sequence[Receiver], sent: set[int]) -> None:
    """Wait until nothing is missing, or no more has come for a second, at most ``SETTLE_S``."""
    end = time.perf_counter() + SETTLE_S
    quiet, before = time.perf_counter(), -1
    while time.perf_counter() < end:
        if not any(receiver.lost(sent) for receiver in receivers):
            break
        count = sum(len(receiver.numbers) for receiver in receivers)
        if count != before:
            quiet, before = time.perf_counter(), count
        elif time.perf_counter() - quiet > 1.0:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.2)  # for a copy too many


async def recoveries(ports: Sequence[int], token: str, returns: int = RETURNS) -> dict[str, float]:
    """``recovery-lost``, ``recovery-doubled``, ``recovery-refused``: copies, copies and returns, of all clients.

    Raises :class:`BenchError`.
    """
    chance = random.Random(7)
    receivers = [Receiver({"token": token, "clientType": "user-scoped"}) for _ in range(CLIENTS)]
    poster, done = Poster(ports[0], token, "update"), asyncio.Event()

    async def come_and_go(receiver: Receiver) -> None:
        for _ in range(returns):
            await asyncio.sleep(chance.uniform(*UP_S))
            receiver.cut()
            await asyncio.sleep(chance.uniform(*AWAY_S))
            await receiver.connect(chance.choice(ports))

    try:
        for number, receiver in enumerate(receivers):
            await receiver.connect(ports[number % len(ports)])
        posting = asyncio.ensure_future(poster.run(done))
        await asyncio.gather(*(come_and_go(receiver) for receiver in receivers))
        done.set()
        await posting
        await _all_there(receivers, poster.sent)
    finally:
        done.set()
        for receiver in receivers:
            receiver.cut()
    return {
        "recovery-lost": float(sum(receiver.lost(poster.sent) for receiver in receivers)),
        "recovery-doubled": float(sum(receiver.doubled for receiver in receivers)),
        "recovery-refused": float(sum(receiver.refused for receiver in receivers)),
    }


async def standstill(
    ports: Sequence[int], token: str, redis: int, stop_s: float = STOP_S
) -> dict[str, float]:
    """``redis-stop-lost`` [copies], ``redis-stop-disorder`` [neighbours]: Redis (a pid) is stopped and goes on.

    Received by a client of the replica that emits and by one of another. Raises :class:`BenchError`.
    """
    receivers = [Receiver({"token": token, "clientType": "user-scoped"}) for _ in range(2)]
    poster, done = Poster(ports[0], token, "ephemeral"), asyncio.Event()
    try:
        for receiver, port in zip(receivers, ports, strict=False):
            await receiver.connect(port)
        posting = asyncio.ensure_future(poster.run(done))
        await asyncio.sleep(0.5)
        os.kill(redis, signal.SIGSTOP)
        try:
            await asyncio.sleep(stop_s)
        finally:
            os.kill(redis, signal.SIGCONT)
        await asyncio.sleep(1.0)
        done.set()
        await posting
        await _all_there(receivers, poster.sent)
    finally:
        done.set()
        for receiver in receivers:
            receiver.cut()
    return {
        "redis-stop-lost": float(sum(receiver.lost(poster.sent) for receiver in receivers)),
        "redis-stop-disorder": float(receivers[1].disorder(receivers[0])),
    }
