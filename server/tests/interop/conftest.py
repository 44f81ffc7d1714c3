"""One cluster for a module: a Redis, two Node processes, two nodes of ours, a socket in each; all in room ``all``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest
import pytest_asyncio

from ..cluster.nodes import FakeSocket, Node
from ..valkey import Valkey
from .peers import NodePeer, require_node

Until = Callable[..., Awaitable[None]]


@dataclass
class Mixed:
    """``nodes[i]`` has the client ``n<i>`` (``sids[i]``), ``ours[i]`` has ``sockets[i]``, whose sid is ``p<i>``."""

    valkey: Valkey
    nodes: list[NodePeer]
    sids: list[str]
    ours: list[Node]
    sockets: list[FakeSocket]

    def forget(self) -> None:
        """What was received so far."""
        for peer in self.nodes:
            peer.got.clear()
        for socket in self.sockets:
            socket.got.clear()
            socket.asked.clear()

    @property
    def received(self) -> list[list[list[object]]]:
        """By Node's clients, then by ours."""
        return [self.nodes[i].got[f"n{i}"] for i in (0, 1)] + [socket.got for socket in self.sockets]


async def warm(peers: list[NodePeer], node: Node, clients: list[str]) -> None:
    """Until the clients of the Node peers hear ``node``.

    Node takes the end of the stream anew with each read until it has read something, so first entries are lost. All
    of these have come when this returns: what comes after the last one is of the test.
    """
    received = [peer.got[client] for peer, client in zip(peers, clients, strict=True)]
    heard = [len(got) for got in received]
    async with asyncio.timeout(20):
        while not all(len(got) > before for got, before in zip(received, heard, strict=True)):
            node.manager.emit_now("warm", [], ["all"])
            await asyncio.sleep(0.02)
        node.manager.emit_now("warm", ["the last"], ["all"])
        while not all(got[-1] == ["warm", "the last"] for got in received):
            await asyncio.sleep(0.005)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mixed() -> AsyncIterator[Mixed]:
    require_node()
    valkey = Valkey()
    valkey.start()
    cluster = Mixed(valkey, [], [], [], [])
    try:
        cluster.nodes += await asyncio.gather(*(NodePeer().start(valkey.url) for _ in range(2)))
        for i, peer in enumerate(cluster.nodes):
            await peer.do("serve")
            cluster.sids.append(await peer.client(f"n{i}"))
            cluster.ours.append(await Node(valkey.url, timeout_ms=1000).start())
            cluster.sockets.append(await cluster.ours[i].client(f"p{i}", "all"))
        async with asyncio.timeout(20):
            while valkey.client.pubsub_numsub("socket.io#/#")[0][1] != 4:
                await asyncio.sleep(0.02)
        await warm(cluster.nodes, cluster.ours[0], ["n0", "n1"])
        async with asyncio.timeout(20):
            while cluster.sockets[1].got[-1:] != [["warm", "the last"]]:
                await asyncio.sleep(0.005)
        yield cluster
    finally:
        for node in cluster.ours:
            await node.stop()
        for peer in cluster.nodes:
            await peer.stop()
        valkey.stop()


@pytest.fixture
def cluster(mixed: Mixed) -> Mixed:
    """The same, with nothing received yet."""
    mixed.forget()
    return mixed


@pytest_asyncio.fixture
async def start_node(valkey: Valkey) -> AsyncIterator[Callable[..., Awaitable[Node]]]:
    """``await start_node(**options)``: a node of ours on ``valkey`` that ends with the test."""
    made: list[Node] = []

    async def start(**options: object) -> Node:
        made.append(Node(valkey.url, **options))  # type: ignore[arg-type]
        return await made[-1].start()

    yield start
    for node in made:
        await node.stop()


@pytest_asyncio.fixture
async def start_peer(valkey: Valkey) -> AsyncIterator[Callable[..., Awaitable[NodePeer]]]:
    """``await start_peer()``: a Node process on ``valkey`` that ends with the test."""
    require_node()
    made: list[NodePeer] = []

    async def start() -> NodePeer:
        made.append(await NodePeer().start(valkey.url))
        return made[-1]

    yield start
    for peer in made:
        await peer.stop()
