"""Known failures around Redis: restarts, killed connections, limits. A cluster of one Node server and ours each."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ..cluster.nodes import FakeSocket, Node
from ..conftest import WAIT_S
from ..valkey import Valkey
from .conftest import Until, warm
from .peers import NodePeer

pytestmark = pytest.mark.node

StartNode = Callable[..., Awaitable[Node]]
StartPeer = Callable[..., Awaitable[NodePeer]]


@dataclass
class Pair:
    """A Node server with the client ``n0``, and a node of ours with ``socket``; both in room ``all``."""

    peer: NodePeer
    sid: str
    node: Node
    socket: FakeSocket

    @property
    def theirs(self) -> list[list[Any]]:
        return self.peer.got["n0"]

    async def both_ways(self, until: Until, mark: str) -> None:
        """Both hear each other (again)."""
        await self.peer.do("emit", rooms=["all"], event=f"node {mark}")
        self.node.manager.emit_now(f"ours {mark}", [], ["all"])
        await until(lambda: [f"node {mark}"] in self.socket.got and [f"ours {mark}"] in self.theirs)


@pytest.fixture
async def pair(start_peer: StartPeer, start_node: StartNode, valkey: Valkey, until: Until) -> Pair:
    peer, node = await start_peer(), await start_node()
    await peer.do("serve")
    made = Pair(peer, await peer.client("n0"), node, await node.client("p0", "all"))
    await until(lambda: valkey.client.pubsub_numsub("socket.io#/#")[0][1] == 2)
    await warm([peer], node, ["n0"])
    peer.got.clear()
    made.socket.got.clear()
    return made


def kill_clients(valkey: Valkey) -> None:
    """Cut every connection to Redis but our own."""
    for kind in ("normal", "pubsub"):
        valkey.client.client_kill_filter(_type=kind, skipme=True)


async def test_failure_03_both_ways_again_after_a_restart_and_after_kills(
    pair: Pair, valkey: Valkey, until: Until
) -> None:
    kill_clients(valkey)
    await until(lambda: valkey.client.pubsub_numsub("socket.io#/#")[0][1] == 2)
    await pair.both_ways(until, "after kills")
    valkey.kill()
    valkey.start()
    await until(lambda: valkey.client.pubsub_numsub("socket.io#/#")[0][1] == 2)
    # Node goes on at its old position of a stream that is a new one, so it hears nothing until ids have passed it;
    # ids are times, so they have.
    await pair.both_ways(until, "after a restart")
    found, complete = await pair.node.manager.requests.fetch_sockets(["all"])
    assert ({socket.id for socket in found}, complete) == ({pair.sid, "p0"}, True)
    assert len(await pair.peer.do("fetch", rooms=["all"])) == 2


async def test_failure_19_local_delivery_when_redis_refuses(
    start_node: StartNode, valkey: Valkey, until: Until
) -> None:
    node = await start_node()
    socket = await node.client("p0", "all")
    node.manager.emit_now("first", [], ["all"])
    await until(lambda: not node.manager.writer.pending)
    valkey.client.set("socket.io", "not a stream")
    node.manager.emit_now("wrong type", [], ["all"])
    assert socket.got[-1] == ["wrong type"]
    await until(lambda: node.manager.writer.refused == 1)
    valkey.client.delete("socket.io")
    valkey.client.config_set("maxmemory", 1)
    node.manager.emit_now("no memory", [], ["all"])
    assert socket.got[-1] == ["no memory"]
    await until(lambda: node.manager.writer.refused == 2)
    valkey.client.config_set("maxmemory", 0)


async def test_failure_26_nothing_is_lost_while_redis_stands_still(
    pair: Pair, valkey: Valkey, until: Until
) -> None:
    count = 300
    valkey.freeze()
    for n in range(count):
        pair.node.manager.emit_now("n", [n], ["all"])
        if n % 100 == 0:
            await asyncio.sleep(0.3)
    assert len(pair.socket.got) == count
    valkey.thaw()
    await until(lambda: len(pair.theirs) >= count)
    await pair.both_ways(until, "after")
    assert [event for event in pair.theirs if event[0] == "n"] == [["n", n] for n in range(count)]


async def test_failure_27_a_subscriber_that_redis_cuts_off_comes_back(
    pair: Pair, valkey: Valkey, until: Until
) -> None:
    generation = pair.node.backplane.generation
    valkey.client.config_set("client-output-buffer-limit", "pubsub 100000 0 0")
    valkey.client.publish("socket.io#/#", b"x" * 30_000_000)  # more than the kernel takes at once
    time.sleep(1.0)  # noqa: ASYNC251  (does not read meanwhile)
    await until(lambda: pair.node.backplane.generation > generation)
    valkey.client.config_set("client-output-buffer-limit", "pubsub 33554432 8388608 60")
    await until(lambda: valkey.client.pubsub_numsub("socket.io#/#")[0][1] == 2)
    await pair.both_ways(until, "after")
    found, complete = await pair.node.manager.requests.fetch_sockets(["all"])
    assert (len(found), complete) == (2, True)


async def test_failure_28_reconnecting_leaks_no_descriptors(
    start_node: StartNode, valkey: Valkey, until: Until
) -> None:
    node = await start_node()
    count = len(os.listdir("/proc/self/fd"))
    for _ in range(40):
        generation = node.backplane.generation
        kill_clients(valkey)
        await until(lambda generation=generation: node.backplane.generation > generation)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= count)


async def test_failure_29_idle_reads_are_no_timeouts(start_node: StartNode, valkey: Valkey) -> None:
    node = await start_node(timeout_ms=400)
    generation, reader = node.backplane.generation, node.manager.reader
    await asyncio.sleep(1.5)  # several times the bound of a reply
    assert node.backplane.generation == generation
    assert not reader.deaf
    assert valkey.client.info("stats")["total_connections_received"] < 10


async def test_failure_31_redis_that_closes_idle_connections(
    pair: Pair, valkey: Valkey, until: Until
) -> None:
    valkey.client.config_set("timeout", 1)
    await asyncio.sleep(2.2)
    await until(lambda: valkey.client.pubsub_numsub("socket.io#/#")[0][1] == 2)
    await pair.both_ways(until, "after idling")


class Door:
    """What a name in ``REDIS_URL`` is in a failover: new connections lead to another server, old ones stay."""

    def __init__(self, port: int) -> None:
        self.behind = port
        self._pipes: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.behind)
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.create_task(self._pipe(source, sink))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                sink.write(data)
        except ConnectionError:
            pass
        finally:
            sink.close()

    async def close(self) -> None:
        self._server.close()
        for task in tuple(self._pipes):
            task.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)


@pytest.mark.parametrize("cut", [True, False])
async def test_failure_43_on_after_a_failover(
    valkey_factory: Callable[..., Valkey], until: Until, cut: bool
) -> None:
    old, new = (valkey_factory("--repl-diskless-sync-delay", "0") for _ in range(2))
    new.client.replicaof("127.0.0.1", old.port)
    await until(lambda: new.client.info("replication").get("master_link_status") == "up")
    door = Door(old.port)
    url = await door.open()
    nodes: list[Node] = []
    try:
        nodes += [await Node(url).start(), await Node(url).start()]
        sender, receiver = nodes
        socket = await receiver.client("p0", "all")
        for n in range(200):
            if n == 100:
                await until(lambda: not sender.manager.writer.pending)
                assert old.client.wait(1, 5000) == 1
                new.client.replicaof("NO", "ONE")
                door.behind = new.port
                old.client.replicaof("127.0.0.1", new.port)
                if cut:
                    kill_clients(old)  # as Sentinel does with a master that it demotes
            sender.manager.emit_now("n", [n], ["all"])
            await asyncio.sleep(0.001)
        await until(lambda: len(socket.got) >= 200)
        assert [event[1] for event in socket.got] == list(range(200))
        assert new.client.xlen("socket.io") == 200
        # Who only listens learns of a demotion when it next asks its server, once a second.
        async with asyncio.timeout(WAIT_S):
            found: list[str] = []
            while found != ["p0"]:
                found = [socket.id for socket in (await sender.manager.requests.fetch_sockets(["all"]))[0]]
    finally:
        for node in nodes:
            await node.stop()
        await door.close()
