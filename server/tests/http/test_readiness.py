from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest

from moorage.http import peers as module
from moorage.http.peers import Peers
from moorage.http.readiness import Observations, Readiness, decide

from ..conftest import WAIT_S
from .conftest import World

GOOD = Observations(ready_once=True, draining=False, loop_stalled=False, redis="ok", reader_deaf=False)


async def test_health_never_depends_on_anything(world: World, client: httpx.AsyncClient) -> None:
    world.seen = Observations(False, True, True, "down", True)
    answer = await client.get("/health")
    assert answer.status_code == 200
    assert answer.json().keys() == {"status", "timestamp", "service"}
    assert answer.json()["status"] == "ok"
    assert abs(answer.json()["timestamp"] / 1000 - time.time()) < 60


@pytest.mark.parametrize(
    ("change", "peers", "ready", "degraded"),
    [
        ({}, None, True, False),
        ({"redis": "unset"}, None, True, False),
        ({"ready_once": False}, None, False, False),
        ({"draining": True}, None, False, False),
        ({"loop_stalled": True}, None, False, False),
        ({"reader_deaf": True}, None, False, False),
        ({"redis": "down"}, None, True, True),
        ({"redis": "down"}, False, True, True),
        ({"redis": "down"}, True, False, True),
        ({"redis": "down", "reader_deaf": True}, False, True, True),
        ({"redis": "down", "draining": True}, False, False, True),
        ({"redis": "down", "ready_once": False}, False, False, True),
    ],
)
async def test_ready(
    world: World, client: httpx.AsyncClient, change: Any, peers: bool | None, ready: bool, degraded: bool
) -> None:
    async def ask() -> bool | None:
        return peers

    world.seen, world.ask_peers = replace(GOOD, **change), ask
    answer = await client.get("/ready")
    assert answer.status_code == (200 if ready else 503)
    assert answer.json().keys() == {"status", "degraded", "checks"}
    assert answer.json()["degraded"] is degraded
    assert answer.json()["checks"].keys() == {"redis", "reader", "loop", "draining"}


def test_every_case_is_decided_by_the_rules() -> None:
    """All combinations: an outage that all share is never a reason, and nothing else is forgiven."""
    flags = (False, True)
    for once, draining, stalled, deaf in itertools.product(flags, repeat=4):
        for redis, peers in itertools.product(("ok", "down", "unset"), (None, False, True)):
            verdict = decide(Observations(once, draining, stalled, redis, deaf), peers)  # type: ignore[arg-type]
            alone = redis == "down" and peers is True
            deaf_while_up = redis == "ok" and deaf
            assert verdict.ready is (once and not (draining or stalled or alone or deaf_while_up))


async def test_peers_are_asked_only_where_it_matters() -> None:
    asked = 0

    async def ask() -> bool:
        nonlocal asked
        asked += 1
        return True

    for change, times in (({}, 0), ({"redis": "down", "draining": True}, 0), ({"redis": "down"}, 1)):
        asked = 0
        await Readiness(lambda change=change: replace(GOOD, **change), ask).check()
        assert asked == times
    asked = 0
    verdict = await Readiness(lambda: replace(GOOD, redis="down"), ask).check(ask=False)
    assert (asked, verdict.ready, verdict.degraded) == (0, True, True)


async def test_a_peers_question_is_not_passed_on(world: World, client: httpx.AsyncClient) -> None:
    async def ask() -> bool:
        raise AssertionError("asked")

    world.seen, world.ask_peers = replace(GOOD, redis="down"), ask
    answer = await client.get("/ready?peer=1")
    assert (answer.status_code, answer.json()["checks"]["redis"]) == (200, "down")


class Peer:
    """A replica that answers ``/ready`` with ``body``, or never."""

    def __init__(self, body: bytes | None) -> None:
        self.body = body
        self.asked: list[bytes] = []
        self.port = 0

    async def __aenter__(self) -> Peer:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *args: object) -> None:
        self.server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        if self.body is None:
            await reader.read()
        else:
            writer.write(b"HTTP/1.1 503 x\r\nContent-Length: %d\r\n\r\n%s" % (len(self.body), self.body))
        writer.close()


@pytest.mark.parametrize(
    ("body", "reached"),
    [
        (b'{"checks":{"redis":"ok"}}', True),
        (b'{"checks":{"redis":"down"}}', False),
        (b'{"checks":{"redis":"unset"}}', False),
        (b'{"checks":[]}', None),
        (b"[]", None),
        (b"{}", None),
        (b"x", None),
        (b"", None),
        (b"[" * 60_000, None),
        (b" " * 10_000_000, None),
        (None, None),
    ],
)
async def test_what_a_peer_says(
    body: bytes | None, reached: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CACHE_S", 600.0)
    if body is not None:
        monkeypatch.setattr(module, "ASK_TIMEOUT_S", WAIT_S)
    async with Peer(body) as peer:
        peers = Peers("127.0.0.1", peer.port)
        answers = await asyncio.gather(*(peers.reach_redis() for _ in range(5)))
        assert answers == [reached] * 5
        assert await peers.reach_redis() is reached
        assert len(peer.asked) == 1
        assert peer.asked[0].startswith(b"GET /ready?peer=1 HTTP/1.1\r\n")


async def test_after_the_cache_they_are_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CACHE_S", 0.0)
    monkeypatch.setattr(module, "ASK_TIMEOUT_S", WAIT_S)
    async with Peer(b'{"checks":{"redis":"down"}}') as peer:
        peers = Peers("127.0.0.1", peer.port)
        assert await peers.reach_redis() is False
        peer.body = b'{"checks":{"redis":"ok"}}'
        assert await peers.reach_redis() is True


async def test_nobody_there() -> None:
    async with Peer(None) as peer:
        port = peer.port
    assert await Peers("127.0.0.1", port).reach_redis() is None
    assert await Peers("no such host", port).reach_redis() is None


async def test_one_that_answers_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ASK_TIMEOUT_S", WAIT_S)
    async with Peer(b'{"checks":{"redis":"ok"}}') as peer:

        async def resolve(host: str, port: int, **options: Any) -> list[Any]:
            # 127.0.0.2 … refuse: the peer listens on 127.0.0.1 only.
            return [(2, 1, 6, "", (f"127.0.0.{n}", port)) for n in (3, 2, 1, 1)]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve, raising=False)
        assert await Peers("replicas", peer.port).reach_redis() is True
        assert len(peer.asked) == 1
