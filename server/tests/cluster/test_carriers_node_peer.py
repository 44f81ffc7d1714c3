"""Questions in both directions by the other carriers: sharded pub/sub, and the stream for adapters of 0.2.x."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from ..valkey import Valkey
from .nodes import FakeSocket, Node
from .test_manager_node_peer import PACKAGES, Peer
from .test_manager_node_peer import pytestmark as needs_node

Until = Callable[..., Awaitable[None]]
Pair = tuple[Peer, Node, FakeSocket]

pytestmark = needs_node
CARRIERS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "sharded": (
        {"sharded_pubsub": True, "channel_prefix": "mine", "stream_name": "own"},
        {
            "ADAPTER_OPTIONS": json.dumps(
                {"useShardedPubSub": True, "channelPrefix": "mine", "streamName": "own"}
            )
        },
    ),
    "0.2": ({"compat": "0.2"}, {"ADAPTER": "redis-streams-adapter-02"}),
}


@pytest_asyncio.fixture(params=list(CARRIERS))
async def pair(request: pytest.FixtureRequest, valkey: Valkey, until: Until) -> AsyncIterator[Pair]:
    options, environment = CARRIERS[request.param]
    if request.param == "0.2" and not (PACKAGES / "node_modules" / environment["ADAPTER"]).is_dir():
        pytest.fail("the Node packages are old: make node")
    peer = await Peer().start(valkey.url, **environment)
    node = await Node(valkey.url, **options).start()
    socket = await node.client("py", "all")
    await peer.hear(node.manager, until)
    while await node.manager.requests.node_count() < 2:
        await asyncio.sleep(0.02)
    socket.got.clear()
    yield peer, node, socket
    await node.stop()
    await peer.stop()


async def test_events_and_rooms(pair: Pair, until: Until) -> None:
    peer, node, socket = pair
    await peer.do("emit", rooms=["all"], event="from node", args=[{"$bytes": "AP8="}])
    await node.manager.to("all").emit("from us", b"\x00\xff")
    await until(lambda: len(socket.got) == 2 and len(peer.got) == 2)
    await peer.do("join", sid="py", room="x")
    await until(lambda: "x" in node.manager.rooms_of("py"))
    await node.manager.in_(peer.sid).sockets_join("y")
    await node.manager.to("y").emit("only it")
    await until(lambda: ["only it"] in peer.got)


async def test_questions(pair: Pair, until: Until) -> None:
    peer, node, socket = pair
    found = await node.manager.fetch_sockets()
    assert found.complete
    assert {other.id for other in found} == {"py", peer.sid}
    assert {other["id"] for other in await peer.do("fetch", rooms=["all"])} == {"py", peer.sid}
    acks = await node.manager.to(peer.sid).timeout(5000).emit_with_ack("ask")
    assert acks.complete
    assert acks == [{"ack": "node"}]
    asking = asyncio.ensure_future(peer.do("ack", rooms=["py"], event="ask", args=[]))
    await until(lambda: socket.asked)
    await socket.ack("from us")
    assert await asking == ["from us"]


async def test_server_side_events(pair: Pair, until: Until) -> None:
    peer, node, _ = pair
    node.manager.on("triple", lambda number: number * 3)
    answers = await node.manager.server_side_emit_with_ack("double", 4)
    assert answers.complete
    assert answers == [8]
    assert await peer.do("serverSide", event="triple", args=[4]) == [12]
