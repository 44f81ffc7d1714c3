"""Recovery in a cluster with a Node server that recovers clients, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest_asyncio

from ..cluster.test_manager_node_peer import Peer
from ..cluster.test_manager_node_peer import pytestmark as needs_node
from ..conftest import WAIT_S
from ..valkey import Valkey
from .raw import Raw
from .running import Running, running

Until = Callable[..., Awaitable[None]]

pytestmark = needs_node


@pytest_asyncio.fixture
async def mixed(valkey: Valkey, until: Until) -> AsyncIterator[tuple[Peer, Running]]:
    async with AsyncExitStack() as stack:
        ours = await stack.enter_async_context(running(valkey.url))
        peer = await Peer().start(valkey.url, RECOVERY="1")
        await peer.hear(ours.replica.manager, until)
        yield peer, ours
        await peer.stop()


async def test_what_node_sent_meanwhile_comes_once(mixed: tuple[Peer, Running], until: Until) -> None:
    peer, ours = mixed
    room = ["user:acc"]
    async with Raw(ours.url, token=ours.token()) as raw:
        await peer.do("emit", rooms=room, event="one", args=[{"n": 1}])
        await until(lambda: raw.events == [["one", {"n": 1}]])
        await raw.cut()
        await peer.do("emit", rooms=room, event="two", args=[{"n": 2}])
        await peer.do("emit", rooms=room, event="bytes", args=[{"$bytes": "AP8="}])
        await peer.do("emit", rooms=["elsewhere"], event="not for it", args=[])
        await peer.do("emit", rooms=room, **{"except": [raw.sid]}, event="not for it", args=[])
        await ours.replica.updates.update("acc", "user-scoped-only", None, {"n": 3})
        await raw.connect()
        assert raw.recovered
        await peer.do("emit", rooms=room, event="end", args=[])
        await until(lambda: raw.events[-1:] == [["end"]])
        assert [event[0] for event in raw.events] == ["one", "two", "bytes", "update", "end"]


async def test_a_client_of_node_recovers_over_our_markers(mixed: tuple[Peer, Running], until: Until) -> None:
    peer, ours = mixed
    async with (
        Raw(f"http://127.0.0.1:{peer.port}", path="/socket.io/") as raw,
        Raw(ours.url, token=ours.token()) as other,
    ):
        await ours.replica.server.emit("one", {"n": 1}, to="all")
        await until(lambda: [event[0] for event in raw.events] == ["one"])
        await raw.cut()
        await other.send("rpc-register", {"method": "m"})
        await until(lambda: other.of("rpc-registered"))
        await other.cut()
        await other.connect()
        await ours.replica.server.emit("two", {"n": 2}, to="all")
        # Node must have seen the loss to keep the session
        async with asyncio.timeout(WAIT_S):
            while raw.sid in [socket["id"] for socket in await peer.do("fetch", rooms=["all"])]:
                await asyncio.sleep(0.01)
        await raw.connect()
        assert raw.recovered
        await ours.replica.server.emit("three", {"n": 3}, to="all")
        await until(lambda: [event[0] for event in raw.events] == ["one", "two", "three"])


async def test_a_private_id_of_the_other_kind_gives_a_new_socket(mixed: tuple[Peer, Running]) -> None:
    _, ours = mixed
    async with Raw(ours.url, token=ours.token()) as raw:
        first = raw.pid
        raw.pid = "AAAAAAAAAAAAAAAAAAAA"  # as Node's look
        await raw.cut()
        await raw.connect()
        assert not raw.recovered
        assert raw.pid not in (None, first)
