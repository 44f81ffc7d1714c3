"""Known failures of such clusters (facts in docs/interop.md) that disturb nobody: all in one mixed cluster."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ..cluster.nodes import Node
from .conftest import Mixed, Until

pytestmark = [pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

ODD: list[Any] = [
    float("nan"),
    float("-inf"),
    2**64 - 1,
    -(2**63),
    "\ud800 alone",
    "",
    {"": {}},
    [[[[[]]]]],
    b"",
    {"toJSON": 1},
    None,
]


async def test_failure_04_nothing_we_write_stalls_a_node_reader(cluster: Mixed, until: Until) -> None:
    ours = cluster.ours[0]
    for value in ODD:
        ours.manager.emit_now("odd", [value], ["all"])
        ours.manager.emit_now("odd", [value, b"\x00"], ["all"], ["nobody"])
    ours.manager.emit_now("odd", [], [])
    await ours.server.enter_room(cluster.sids[0], "")
    await ours.server.leave_room(cluster.sids[0], "")
    await ours.server.close_room("no such room", "/")
    await ours.server.disconnect("no such socket")
    await ours.manager.requests.server_side_emit("nobody handles this", [b"\x00", None])
    await ours.manager.requests.emit_with_ack("nobody", "odd", [float("nan")], 100)
    ours.manager.emit_now("end", [], ["all"])
    await until(lambda: all(got and got[-1] == ["end"] for got in cluster.received))
    assert [len(got) for got in cluster.received] == [2 * len(ODD) + 2] * 4


async def test_failure_20_join_then_emit_keep_their_order(cluster: Mixed, until: Until) -> None:
    count = 100
    await cluster.nodes[0].do("joinAndEmit", sid="p0", count=count)
    await until(lambda: len(cluster.sockets[0].got) == count)
    for n in range(count):
        await cluster.ours[0].server.enter_room(cluster.sids[1], f"ours-{n}")
        cluster.ours[0].manager.emit_now("joined", [n], [f"ours-{n}"])
    await until(lambda: len(cluster.nodes[1].got["n1"]) == count)
    assert cluster.sockets[0].got == cluster.nodes[1].got["n1"] == [["joined", n] for n in range(count)]


async def test_failure_24_nobody_waits_for_a_node_without_a_handler(cluster: Mixed) -> None:
    for node in cluster.ours:
        node.manager.requests.handlers.clear()
    async with asyncio.timeout(4):  # Node waits 5 s for who does not answer
        answers = await cluster.nodes[0].do("serverSide", event="double", args=[4])
        assert sorted(answers, key=str) == [8, None, None]
        found, complete = await cluster.ours[0].manager.requests.server_side_emit("double", [2], 4000)
    assert complete
    assert sorted(found, key=str) == [4, 4, None]


async def test_failure_25_an_ack_of_one_socket_waits_for_no_other_node(cluster: Mixed, until: Until) -> None:
    ours = cluster.ours[0].manager
    async with asyncio.timeout(4):
        assert await ours.requests.emit_with_ack(cluster.sids[0], "ask", [], 5000) == ([{"ack": "n0"}], True)
        acks, complete = await ours.requests.emit_with_ack(
            "all", "never answer", [], 200, [cluster.sids[1], "p0", "p1"]
        )
    assert (acks, complete) == ([], False)
    assert not ours.requests._questions


async def test_failure_35_fetched_sockets_are_the_union_of_all_nodes(cluster: Mixed) -> None:
    seen = []
    for node in cluster.ours:
        found, complete = await node.manager.requests.fetch_sockets()
        assert complete
        seen.append({socket.id for socket in found})
    seen += [{socket["id"] for socket in await peer.do("fetch")} for peer in cluster.nodes]
    assert all(each == seen[0] for each in seen)
    assert {*cluster.sids, "p0", "p1"} <= seen[0]


async def test_failure_44_a_numeric_room_is_one_room(cluster: Mixed, until: Until) -> None:
    await cluster.ours[0].server.enter_room("p0", 5)
    await cluster.ours[0].server.enter_room(cluster.sids[0], 5)
    while {socket["id"] for socket in await cluster.nodes[0].do("fetch", rooms=["5"])} != {
        "p0",
        cluster.sids[0],
    }:
        await asyncio.sleep(0.01)
    await cluster.nodes[1].do("emit", rooms=["5"], event="five")
    cluster.ours[1].manager.emit_now("five", [], [5])  # type: ignore[list-item]
    await until(lambda: len(cluster.sockets[0].got) == 2 and len(cluster.nodes[0].got["n0"]) == 2)
    await cluster.ours[1].server.close_room(5, "/")
    await until(lambda: "5" not in cluster.ours[0].manager.rooms_of("p0"))


async def test_failure_45_many_questions_with_many_sockets_at_once(cluster: Mixed) -> None:
    crowd = [f"crowd-{n}" for n in range(500)]
    for sid in crowd:
        await cluster.ours[1].client(sid, "crowd")
    try:
        found = await asyncio.gather(
            *(cluster.ours[0].manager.requests.fetch_sockets(["crowd"], timeout_ms=8000) for _ in range(50)),
            *(cluster.nodes[0].do("fetch", rooms=["crowd"], timeout=8000) for _ in range(10)),
        )
        assert all(len(sockets) == 500 and complete for sockets, complete in found[:50])
        assert all(len(sockets) == 500 for sockets in found[50:])
    finally:
        for sid in crowd:
            await cluster.ours[1].manager.disconnect(sid, "/", ignore_queue=True)


async def test_failure_47_own_messages_never_come_back(cluster: Mixed, until: Until) -> None:
    """Two servers in one process, two namespaces in each: their sender ids keep them apart."""
    names = ("/", "/other")
    nodes = [await Node(cluster.valkey.url, namespaces=names).start() for _ in range(2)]
    try:
        sockets = [
            await node.client(f"twin-{i}", "twins", namespace=name)
            for i, node in enumerate(nodes)
            for name in names
        ]
        for i, node in enumerate(nodes):
            for name in names:
                for n in range(20):
                    node.manager.emit_now("n", [i, n], ["twins"], namespace=name)
        await until(lambda: all(len(socket.got) >= 40 for socket in sockets))
        for i, node in enumerate(nodes):
            node.manager.emit_now("end", [i], ["twins"])
        await until(lambda: all(socket.events.count("end") == 2 for socket in (sockets[0], sockets[2])))
        for socket in sockets:
            numbers = [event[1:] for event in socket.got if event[0] == "n"]
            assert sorted(numbers) == [[i, n] for i in range(2) for n in range(20)]
    finally:
        for node in nodes:
            await node.stop()


async def test_failure_48_scripts_may_vanish(cluster: Mixed, until: Until) -> None:
    for n in range(1, 4):
        cluster.valkey.client.script_flush()
        assert await cluster.ours[0].manager.emit_counted("account", "update", {}, ["all"]) == n
    await until(lambda: all(len(got) == 3 for got in cluster.received))
    assert [event[1]["seq"] for event in cluster.nodes[0].got["n0"]] == [1, 2, 3]
