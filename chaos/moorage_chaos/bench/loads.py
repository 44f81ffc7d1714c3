"""Two kinds of load, each closed: calls with a fixed number in flight, and broadcasts, flooding or paced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import orjson

from moorage_chaos.bench.client import BenchError, HttpConnection, SocketClient, http_request

SETTLE_S = 10.0
"""[s] Bound of the wait for what is still under way when a phase ends."""
CALL_BYTES = 120
"""[bytes] Of ``params.data``: a small encrypted request, as base64."""
BODY_BYTES = 80
"""[bytes] Of a broadcast's ``body.data``."""


LOOK_S = 0.005
"""[s] Between two looks of a wait; seldom enough to cost nothing."""


async def _until(settled: Callable[[], bool]) -> None:
    """Wait until ``settled()``, at most ``SETTLE_S``."""
    for _ in range(int(SETTLE_S / LOOK_S)):
        if settled():
            return
        await asyncio.sleep(LOOK_S)


class Pair:
    """A caller on one replica, a daemon with one method on another; several calls of it may be in flight."""

    def __init__(self, caller: SocketClient, daemon: SocketClient, method: str) -> None:
        self.caller = caller
        self.daemon = daemon
        self.method = method
        self._data = "x" * CALL_BYTES
        self._next = 0
        self._started: dict[int, float] = {}
        self._ended: Callable[[float, float], None] | None = None
        self.registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.failure = ""
        """Why the first failed call failed; empty: none did."""
        self.answer = b""
        """The last answer, whole."""
        caller.on_ack = self._answered
        daemon.on_event = self._asked

    def register(self) -> None:
        """Ask for the method; ``registered`` is done when the server says so."""
        self.daemon.send(b"42" + orjson.dumps(["rpc-register", {"method": self.method}]))

    def call(self, ended: Callable[[float, float], None]) -> None:
        """Send one ``rpc-call``; ``ended(started, now)`` [s, perf_counter] when its answer is here."""
        self._ended = ended
        self._next += 1
        number = self._next
        call = ["rpc-call", {"method": self.method, "params": {"n": number, "data": self._data}}]
        packet = b"42%d%b" % (number, orjson.dumps(call))
        self._started[number] = time.perf_counter()
        self.caller.send(packet)

    @property
    def in_flight(self) -> int:
        """Calls without an answer so far."""
        return len(self._started)

    def _asked(self, data: bytes) -> None:
        at = data.index(b"[")
        event, payload = orjson.loads(data[at:])[:2]
        if event == "rpc-request":
            self.daemon.send(b"43%b%b" % (data[2:at], orjson.dumps([{"n": payload["params"]["n"]}])))
        # Node's answer has no scope; ours says "local" while it has no Redis, and "cluster" later.
        elif event == "rpc-registered" and payload.get("scope") != "local" and not self.registered.done():
            self.registered.set_result(None)

    def _answered(self, data: bytes) -> None:
        now = time.perf_counter()
        at = data.index(b"[")
        number = int(data[2:at])
        started = self._started.pop(number, None)
        if started is None:
            self.failure = self.failure or f"a second answer to call {number}: {data[:200]!r}"
            return
        self.answer = data
        answer = orjson.loads(data[at:])[0]
        if answer.get("ok") is not True or answer["result"] != {"n": number}:
            self.failure = self.failure or f"call {number} of {self.method}: {data[:300]!r}"
        if self._ended is not None:
            self._ended(started, now)


@dataclass(slots=True)
class Calls:
    """What a run of calls yielded."""

    seconds: float
    """[s] Over which ``latencies`` were counted."""
    latencies: list[float] = field(default_factory=list)
    """[s] Of each call that ended within."""
    ended: int = 0
    """All calls, with those that ended after."""


async def run_calls(pairs: Sequence[Pair], each: int, seconds: float) -> Calls:
    """Keep ``each`` calls in flight on every pair for ``seconds``; counts what ended within.

    Raises :class:`BenchError` when a call failed or was not answered within ``SETTLE_S`` after the end.
    """
    result = Calls(seconds)
    until = time.perf_counter() + seconds

    def again(pair: Pair) -> Callable[[float, float], None]:
        def ended(started: float, now: float) -> None:
            result.ended += 1
            if now < until and not pair.failure:
                result.latencies.append(now - started)
                pair.call(ended)

        return ended

    for pair in pairs:
        ended = again(pair)
        for _ in range(each):
            pair.call(ended)
    await asyncio.sleep(seconds)
    await _until(lambda: not any(pair.in_flight for pair in pairs) or any(pair.failure for pair in pairs))
    for pair in pairs:
        if pair.failure:
            raise BenchError(pair.failure)
        if pair.in_flight:
            raise BenchError(f"{pair.in_flight} calls of {pair.method} have no answer after {SETTLE_S:g} s")
    return result


class Fan:
    """Sockets of one account on every replica, and connections to post broadcasts to them."""

    def __init__(self, sockets: Sequence[SocketClient], links: Sequence[HttpConnection], token: str) -> None:
        self._links = list(links)
        self._token = token
        self.size = len(sockets)
        self.counts = [0] * len(sockets)
        self.sent = 0
        self.delivered = 0
        self.failure = ""
        self._pump: Callable[[], None] | None = None
        for place, socket in enumerate(sockets):
            socket.on_event = self._counter(place)

    def _counter(self, place: int) -> Callable[[bytes], None]:
        counts, size = self.counts, self.size

        def received(data: bytes) -> None:
            if data.startswith(b'42["ephemeral"') and b'"bench"' in data:
                counts[place] += 1
                self.delivered += 1
                if self._pump is not None and self.delivered % size == 0:
                    self._pump()

        return received

    def _answered(self, status: int, body: bytes) -> None:
        if status != 202:
            self.failure = self.failure or f"POST /v1/emit: {status} {body[:300]!r}"
        if self._pump is not None:
            self._pump()

    def use(self, links: Sequence[HttpConnection]) -> None:
        """Post by these from now on: servers close a connection that was idle for a few seconds."""
        self.close()
        self._links = list(links)

    def post(self) -> bool:
        """Send one broadcast by the next idle connection; False when all are busy."""
        for _ in range(len(self._links)):
            link = self._links.pop(0)
            self._links.append(link)
            if link.idle:
                body = {"type": "bench", "n": self.sent, "data": "x" * BODY_BYTES}
                message = {"event": "ephemeral", "filter": {"type": "user-scoped-only"}, "body": body}
                self.sent += 1
                link.request(
                    http_request("POST", "/v1/emit", self._token, orjson.dumps(message)), self._answered
                )
                return True
        if not any(link.standing for link in self._links):
            self.failure = self.failure or "no connection to post by is left"
        return False

    async def flood(self, seconds: float, window: int) -> float:
        """Keep ``window`` broadcasts under way for ``seconds``; returns deliveries a second within that time.

        A broadcast is under way until the number of deliveries says that everybody has it.
        """

        def pump() -> None:
            while not self.failure and self.sent - self.delivered // self.size < window and self.post():
                pass

        before, began = self.delivered, time.perf_counter()
        self._pump = pump
        pump()
        await asyncio.sleep(seconds)
        self._pump = None
        rate = (self.delivered - before) / (time.perf_counter() - began)
        await self.settle()
        return rate

    async def pace(self, seconds: float, per_second: float) -> int:
        """Post ``seconds * per_second`` broadcasts at a steady rate, later ones later when the server cannot keep up.

        Returns the deliveries, all of them awaited.
        """
        before = self.delivered
        began = time.perf_counter()
        for number in range(max(1, round(seconds * per_second))):
            await asyncio.sleep(max(0.0, began + number / per_second - time.perf_counter()))
            await _until(lambda: self.post() or bool(self.failure))
        await self.settle()
        return self.delivered - before

    def close(self) -> None:
        """Drop the connections that post."""
        self._pump = None
        for link in self._links:
            link.close()

    async def settle(self) -> None:
        """Until every socket has every broadcast once. Raises :class:`BenchError` with the worst counts."""
        await _until(lambda: self.delivered >= self.sent * self.size or bool(self.failure))
        if self.failure:
            raise BenchError(self.failure)
        if any(count != self.sent for count in self.counts):
            low, high = min(self.counts), max(self.counts)
            raise BenchError(
                f"{self.sent} broadcasts were sent, but sockets have between {low} and {high} of them"
            )
