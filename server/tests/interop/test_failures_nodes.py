"""Known failures around nodes that come, go, die, stand still, or are no nodes at all."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable

import pytest

from ..cluster.nodes import Node
from ..valkey import Valkey
from .conftest import Until, warm
from .peers import NodePeer

pytestmark = pytest.mark.node

StartNode = Callable[..., Awaitable[Node]]
StartPeer = Callable[..., Awaitable[NodePeer]]
PUBLIC = "socket.io#/#"


def nodes(valkey: Valkey) -> int:
    return int(valkey.client.pubsub_numsub(PUBLIC)[0][1])


async def test_failure_01_nodes_come_and_go_while_sockets_are_fetched(
    start_node: StartNode, start_peer: StartPeer, valkey: Valkey, until: Until
) -> None:
    node = await start_node()
    await node.client("p0", "all")
    running, longest = True, 0.0

    async def fetch() -> None:
        nonlocal longest
        while running:
            started = time.monotonic()
            found, _ = await node.manager.requests.fetch_sockets(["all"])
            longest = max(longest, time.monotonic() - started)
            assert "p0" in {socket.id for socket in found}
            await asyncio.sleep(0.02)

    fetching = asyncio.create_task(fetch())
    peers = [await start_peer() for _ in range(2)]
    for i, peer in enumerate(peers):
        await peer.do("serve")
        await peer.client(f"n{i}")
    await until(lambda: nodes(valkey) == 3)
    for _ in range(3):
        other = await start_node()
        await other.stop()
    peers[0].signal(signal.SIGKILL)
    await until(lambda: nodes(valkey) == 2)
    peers[1].process.stdin.close()  # type: ignore[union-attr]
    await until(lambda: nodes(valkey) == 1)
    running = False
    await fetching
    assert longest < 5.0, "a question ran into its timeout"
    found, complete = await node.manager.requests.fetch_sockets(["all"])
    assert ([socket.id for socket in found], complete) == (["p0"], True)


async def test_failure_05_negative_streams_of_node(
    start_node: StartNode, start_peer: StartPeer, valkey: Valkey, until: Until
) -> None:
    names = ["/chat", "/notifications", "/foo"]
    peer = await start_peer()
    await peer.do("serve", adapter={"streamCount": 4}, namespaces=["/", *names])
    node = await start_node(stream_count=4, namespaces=["/", *names])
    sockets = {name: await node.client("p0", "all", namespace=name) for name in names}
    for name in names:
        await peer.client(f"n{name}", nsp=name)
        await until(lambda name=name: valkey.client.pubsub_numsub(f"socket.io#{name}#")[0][1] == 2)
        await peer.do("emit", nsp=name, rooms=["all"], event="from node")
    await until(lambda: all(socket.got == [["from node"]] for socket in sockets.values()))
    for name in names:
        node.manager.emit_now("from ours", [], ["all"], namespace=name)
    # Node writes /notifications to socket.io--3, which it does not read.
    await until(lambda: all(["from ours"] in peer.got[f"n{name}"] for name in ("/chat", "/foo")))
    assert ["from ours"] not in peer.got["n/notifications"]


async def test_failure_07_what_waited_for_a_reader_comes_in_order(
    start_node: StartNode, start_peer: StartPeer, until: Until
) -> None:
    peer, node = await start_peer(), await start_node()
    await peer.do("serve")
    socket = await node.client("p0", "all")
    await peer.do("burst", rooms=["all"], event="n", count=300)
    time.sleep(1.5)  # noqa: ASYNC251  (a process that stands still for longer than its bounds)
    await peer.do("burst", rooms=["all"], event="n", count=300)
    await until(lambda: len(socket.got) == 600)
    assert [event[1] for event in socket.got] == [*range(300), *range(300)]
    assert not node.manager.reader.deaf


async def test_failure_21_a_node_that_stands_still_gives_a_partial_answer(
    start_node: StartNode, start_peer: StartPeer, valkey: Valkey, until: Until
) -> None:
    peer, node = await start_peer(), await start_node()
    await peer.do("serve")
    await peer.client("n0")
    await node.client("p0", "all")
    await until(lambda: nodes(valkey) == 2)
    peer.signal(signal.SIGSTOP)
    found, complete = await node.manager.requests.fetch_sockets(["all"], timeout_ms=300)
    assert ([socket.id for socket in found], complete) == (["p0"], False)
    peer.signal(signal.SIGCONT)
    found, complete = await node.manager.requests.fetch_sockets(["all"])
    assert (len(found), complete) == (2, True)


async def test_failure_22_somebody_who_only_listens(
    start_node: StartNode, start_peer: StartPeer, valkey: Valkey, until: Until
) -> None:
    peer, node = await start_peer(), await start_node()
    await peer.do("serve")
    sid = await peer.client("n0")
    await until(lambda: nodes(valkey) == 2)
    spy = valkey.client.pubsub()  # type: ignore[no-untyped-call]
    spy.subscribe(PUBLIC)
    await until(lambda: nodes(valkey) == 3)
    try:
        found, complete = await node.manager.requests.fetch_sockets(["all"], timeout_ms=2000)
    finally:
        spy.close()
    assert ([socket.id for socket in found], complete) == ([sid], False)


async def test_failure_23_a_question_before_anything_is_up(valkey: Valkey) -> None:
    node = Node(valkey.url)
    await node.client("p0", "all")
    assert await node.manager.requests.emit_with_ack("nobody", "ask", [], 200) == ([], False)
    starting = asyncio.create_task(node.start())
    try:
        for _ in range(20):
            found, _ = await node.manager.requests.fetch_sockets(["all"], timeout_ms=200)
            assert [socket.id for socket in found] == ["p0"]
            await asyncio.sleep(0)
        await starting
        assert await node.manager.requests.server_side_emit("e", [], 1000) == ([], True)
    finally:
        await node.stop()


async def test_failure_25_the_owner_dies_with_a_question_in_hand(
    start_node: StartNode, start_peer: StartPeer, valkey: Valkey, until: Until
) -> None:
    peer, node = await start_peer(), await start_node()
    await peer.do("serve")
    sid = await peer.client("n0")
    await until(lambda: nodes(valkey) == 2)
    asked = asyncio.create_task(
        node.manager.requests.emit_with_ack(sid, "never answer", [], 30_000, single=True)
    )
    await until(lambda: any(event[0] == "never answer" for event in peer.got["n0"]))
    peer.signal(signal.SIGKILL)
    assert await asyncio.wait_for(asked, 10) == ([], False)
    assert not node.manager.requests._questions


async def test_failure_32_acks_that_never_come_leave_nothing(
    start_node: StartNode, start_peer: StartPeer, valkey: Valkey, until: Until
) -> None:
    peer, node = await start_peer(), await start_node()
    await peer.do("serve")
    sid = await peer.client("n0")
    await node.client("p0", "all")
    await until(lambda: nodes(valkey) == 2)
    await asyncio.gather(
        *(node.manager.requests.emit_with_ack(sid, "never answer", [n], 50) for n in range(200)),
        *(node.manager.requests.emit_with_ack("p0", "never answer", [n], 50) for n in range(200)),
    )
    assert not node.manager.requests._questions
    assert not any(node.manager.callbacks.get("p0") or {})
    await warm([peer], node, ["n0"])
