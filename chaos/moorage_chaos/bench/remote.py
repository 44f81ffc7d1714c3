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
KEPT_SHARE = 0.95
"""Of the emits that were due, this many must have gone out, or the rate was not what the figure says."""


class Stream:
    """``links`` lead to one replica, ``socket`` of the same account is connected to another."""

    def __init__(self, socket: SocketClient, links: Sequence[HttpConnection], token: str) -> None:
        self._links = list(links)
        self._token = token
        self._sent: dict[int, float] = {}
        self._number = 0
        self._failure = ""
        self.latencies: list[float] = []
        """[s] From writing the request to the event at the other replica's client."""
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

    def _post(self) -> None:
        link = next((link for link in self._links if link.idle), None)
        if link is None:
            if not any(link.standing for link in self._links):
                self._failure = self._failure or "no connection to post by is left"
            return
        self._number += 1
        body = {"type": "bench", "n": self._number, "data": "x" * DATA_BYTES}
        message = {"event": "ephemeral", "filter": {"type": "user-scoped-only"}, "body": body}
        request = http_request("POST", "/v1/emit", self._token, orjson.dumps(message))
        self._sent[self._number] = time.perf_counter()
        link.request(request, self._answered)

    async def run(self, seconds: float, rate: int = RATE) -> None:
        """Emit for ``seconds``, then wait for what is on its way.

        Raises :class:`BenchError` when an emit failed, was lost or doubled, or the rate could not be kept.
        """
        before, due = self._number, 0
        began = time.perf_counter()
        while (passed := time.perf_counter() - began) < seconds and not self._failure:
            for _ in range(int(passed * rate) - due):
                due += 1
                self._post()
            await asyncio.sleep(0.001)
        for _ in range(int(SETTLE_S / LOOK_S)):
            if not self._sent or self._failure:
                break
            await asyncio.sleep(LOOK_S)
        if self._sent and not self._failure:
            self._failure = f"{len(self._sent)} emits did not arrive within {SETTLE_S:g} s"
        if not self._failure and self._number - before < KEPT_SHARE * due:
            self._failure = f"only {self._number - before} of {due} emits could be sent at {rate}/s"
        if self._failure:
            raise BenchError(self._failure)

    def close(self) -> None:
        """Drop the connections that post."""
        for link in self._links:
            link.close()
