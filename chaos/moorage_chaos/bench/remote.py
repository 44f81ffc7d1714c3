"""Emits at a steady rate on one replica, received by a socket of another: how long each is on its way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import orjson

from moorage_chaos.bench.client import BenchError, HttpConnection, SocketClient, http_request

RATE = 1000
"""[emits/s] Of issue 7: "remote emit → client at 1 kHz"."""
LINKS = 16
"""[connections] HTTP, that the emits go out by: enough for answers that take 16 ms."""
SETTLE_S = 5.0
"""[s] Bound of the wait for the last emits."""
LOOK_S = 0.005
"""[s] Between two looks of that wait."""
DATA_BYTES = 80
"""[bytes] Of an emit's ``body.data``."""
PUNCTUAL_S = 0.002
"""[s] An emit that goes out this soon after it was due is timed from its writing: the client's timers have 1 ms."""


class Stream:
    """``socket`` is connected to one replica; connections to another, of the same account, are given by :meth:`use`."""

    def __init__(self, socket: SocketClient, token: str) -> None:
        self._links: list[HttpConnection] = []
        self._token = token
        self._sent: dict[int, float] = {}
        self._number = 0
        self._failure = ""
        self.latencies: list[float] = []
        """[s] From writing the request to the event at the other replica's client; where the request had to wait for
        the server to answer earlier ones, from when it was due."""
        socket.on_event = self._received

    def _received(self, data: bytes) -> None:
        now = time.perf_counter()
        event, body = orjson.loads(data[2:])[:2]
        if event != "ephemeral" or body.get("type") != "bench":
            return
        started = self._sent.pop(body["n"], None)
        if started is None:
            self._failure = self._failure or f"emit {body['n']} arrived twice"
        else:
            self.latencies.append(now - started)

    def _answered(self, status: int, body: bytes) -> None:
        if status != 202:
            self._failure = self._failure or f"POST /v1/emit: {status} {body[:300]!r}"

    def _post(self, due: float) -> bool:
        """False: every connection waits for an answer."""
        link = next((link for link in self._links if link.idle), None)
        if link is None:
            if not any(link.standing for link in self._links):
                self._failure = self._failure or "no connection to post by is left"
            return False
        self._number += 1
        body = {"type": "bench", "n": self._number, "data": "x" * DATA_BYTES}
        message = {"event": "ephemeral", "filter": {"type": "user-scoped-only"}, "body": body}
        request = http_request("POST", "/v1/emit", self._token, orjson.dumps(message))
        now = time.perf_counter()
        self._sent[self._number] = now if now - due < PUNCTUAL_S else due
        link.request(request, self._answered)
        return True

    async def run(self, seconds: float, rate: int = RATE) -> None:
        """Emit for ``seconds``, later ones later when the server cannot keep up, then wait for what is on its way.

        Raises :class:`BenchError` when an emit failed, was lost or doubled, or is not sent and received within
        ``SETTLE_S`` after the end.
        """
        began, posted, planned = time.perf_counter(), 0, round(seconds * rate)
        while posted < planned and not self._failure:
            now = time.perf_counter()
            if now - began > seconds + SETTLE_S:
                self._failure = f"{planned - posted} of {planned} emits could not be sent at {rate}/s"
            while posted < planned and began + posted / rate <= now and self._post(began + posted / rate):
                posted += 1
            await asyncio.sleep(0.001)
        for _ in range(int(SETTLE_S / LOOK_S)):
            if not self._sent or self._failure:
                break
            await asyncio.sleep(LOOK_S)
        if self._sent and not self._failure:
            self._failure = f"{len(self._sent)} emits did not arrive within {SETTLE_S:g} s"
        if self._failure:
            raise BenchError(self._failure)

    def use(self, links: Sequence[HttpConnection]) -> None:
        """Post by these from now on: servers close a connection that was idle for a few seconds."""
        self.close()
        self._links = list(links)

    def close(self) -> None:
        """Drop the connections that post."""
        for link in self._links:
            link.close()
