"""Own events that come back by the stream: one order everywhere, and no wait for a Redis that is slow or away."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from moorage.cluster import loopback

from ..valkey import Valkey
from .nodes import FakeSocket, Node

Until = Callable[..., Awaitable[None]]
SECRET = "a key of the tests, long enough to sign"


@pytest.fixture
async def pair(start_node: Callable[..., Awaitable[Node]]) -> list[Node]:
    return [await start_node(recovery_secret=SECRET) for _ in range(2)]


async def client(node: Node, sid: str) -> FakeSocket:
    """In the room ``all``, and of a client that knows offsets."""
    socket = await node.client(sid, "all")
    assert node.manager.recovery is not None
    assert node.manager.recovery.connected("/", sid, aware=True).keys() == {"pid"}
    return socket


def numbers(socket: FakeSocket) -> list[int]:
    return [event[1] for event in socket.got]


async def test_one_order_everywhere(pair: list[Node], until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "LATE_S", 10.0)  # a machine that stands still is no slow Redis
    sockets = [await client(node, f"s{i}") for i, node in enumerate(pair)]

    async def emit(node: Node, first: int) -> None:
        for n in range(first, first + 200, 2):
            await node.server.emit("e", n, room="all")

    await asyncio.gather(emit(pair[0], 0), emit(pair[1], 1))
    await until(lambda: all(len(socket.got) == 200 for socket in sockets))
    assert numbers(sockets[0]) == numbers(sockets[1])
    offsets = [event[2] for event in sockets[0].got]
    assert offsets == [event[2] for event in sockets[1].got]
    assert [tuple(map(int, offset.split("-"))) for offset in offsets] == sorted(
        tuple(map(int, offset.split("-"))) for offset in offsets
    )


async def test_a_process_that_stands_still_is_no_slow_redis(pair: list[Node], until: Until) -> None:
    here, there = [await client(node, f"s{i}") for i, node in enumerate(pair)]
    for n in range(20):
        await pair[0].server.emit("e", n, room="all")
    time.sleep(0.3)  # noqa: ASYNC251 -- the whole process, three times as long as Redis may take
    await until(lambda: len(here.got) == len(there.got) == 20)
    assert numbers(here) == numbers(there) == [*range(20)]
    assert [event[2] for event in here.got] == [event[2] for event in there.got]


async def test_while_redis_stands_still_local_sockets_get_it_once(
    pair: list[Node], valkey: Valkey, until: Until
) -> None:
    here, there = [await client(node, f"s{i}") for i, node in enumerate(pair)]
    await pair[0].server.emit("e", 0, room="all")
    await until(lambda: len(here.got) == len(there.got) == 1)
    valkey.freeze()
    try:
        for n in range(1, 50):
            await pair[0].server.emit("e", n, room="all")
        await until(lambda: numbers(here) == [*range(50)], "delivered here")
        assert all(len(event) == 2 for event in here.got[1:])  # no offsets
    finally:
        valkey.thaw()
    await until(lambda: numbers(there) == [*range(50)], "delivered there")
    await until(lambda: not pair[0].manager.writer.pending)
    await pair[0].server.emit("e", 50, room="all")
    await until(lambda: numbers(here)[-1] == 50 and numbers(there)[-1] == 50)
    assert numbers(here) == [*range(51)]


async def test_while_redis_is_gone_local_sockets_get_it_at_once(
    pair: list[Node], valkey: Valkey, until: Until
) -> None:
    here = await client(pair[0], "s")
    valkey.kill()
    await until(lambda: not pair[0].backplane.available)
    await pair[0].server.emit("e", 1, room="all")
    assert numbers(here) == [1]
    valkey.start()


async def test_what_redis_refuses_is_delivered_here(pair: list[Node], valkey: Valkey, until: Until) -> None:
    here = await client(pair[0], "s")
    await pair[0].server.emit("e", 0, room="all")
    await until(lambda: numbers(here) == [0])
    valkey.client.config_set("maxmemory", "1mb")
    valkey.client.config_set("maxmemory-policy", "noeviction")
    for n in (1, 2, 3):
        await pair[0].server.emit("e", n, room="all")
    await until(lambda: numbers(here) == [0, 1, 2, 3])
