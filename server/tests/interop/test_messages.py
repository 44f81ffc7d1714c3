"""Two Node servers and two of ours: each kind of message from each kind of node to all others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from .conftest import Mixed, Until
from .peers import data

pytestmark = [pytest.mark.node, pytest.mark.asyncio(loop_scope="module")]

ARGUMENTS: list[Any] = [1, {"a": None, "b": [True, 1.5]}, "é\u2028"]


async def test_broadcast_from_each(cluster: Mixed, until: Until) -> None:
    for i, peer in enumerate(cluster.nodes):
        await peer.do("emit", rooms=["all"], event=f"from node {i}", args=ARGUMENTS)
    for i, node in enumerate(cluster.ours):
        node.manager.emit_now(f"from ours {i}", ARGUMENTS, ["all"])
    await until(lambda: all(len(got) == 4 for got in cluster.received))
    wanted = sorted(["from node 0", "from node 1", "from ours 0", "from ours 1"])
    for got in cluster.received:
        assert sorted(str(event[0]) for event in got) == wanted
        assert all(event[1:] == ARGUMENTS for event in got)


async def test_binary_from_each(cluster: Mixed, until: Until) -> None:
    await cluster.nodes[0].do("emit", event="node", args=[{"deep": [data(b"\x00\xff")]}, data(b"second")])
    cluster.ours[0].manager.emit_now("ours", [{"deep": [b"\x00\xff"]}, b"second"], [])
    await until(lambda: all(len(got) == 2 for got in cluster.received))
    for got in cluster.received[:2]:
        assert sorted(got) == [[who, {"deep": [b"\x00\xff"]}, b"second"] for who in ("node", "ours")]
    for got in cluster.received[2:]:
        for _, deep, second, *attachments in got:
            assert deep == {"deep": [{"_placeholder": True, "num": 0}]}
            assert second == {"_placeholder": True, "num": 1}
            assert attachments == [b"\x00\xff", b"second"]


@pytest.mark.parametrize("who", ["node", "ours"])
async def test_except_rooms_and_sids(cluster: Mixed, until: Until, who: str) -> None:
    left_out = [cluster.sids[1], "p1"]
    if who == "node":
        await cluster.nodes[0].do("emit", rooms=["all"], **{"except": left_out}, event="some")
        await cluster.nodes[0].do("emit", rooms=["all"], event="end")
    else:
        cluster.ours[0].manager.emit_now("some", [], ["all"], left_out)
        cluster.ours[0].manager.emit_now("end", [], ["all"])
    await until(lambda: all(got and got[-1] == ["end"] for got in cluster.received))
    assert [len(got) for got in cluster.received] == [2, 1, 2, 1]


@pytest.mark.parametrize("who", ["node", "ours"])
async def test_volatile_reaches_who_can_take_it(cluster: Mixed, until: Until, who: str) -> None:
    if who == "node":
        await cluster.nodes[0].do("emit", rooms=["all"], event="fleeting", flags=["volatile"])
    else:
        cluster.ours[0].manager.emit_now("fleeting", [], ["all"], volatile=True)
    await until(lambda: all(got == [["fleeting"]] for got in cluster.received))


async def test_local_stays_where_it_is(cluster: Mixed, until: Until) -> None:
    await cluster.nodes[0].do("emit", rooms=["all"], event="local", flags=["local"])
    cluster.ours[0].manager.emit_local("local", [], ["all"])
    await cluster.nodes[0].do("emit", rooms=["all"], event="end")
    await until(lambda: all(["end"] in got for got in cluster.received))
    assert [got.count(["local"]) for got in cluster.received] == [1, 0, 1, 0]


async def test_join_and_leave_from_elsewhere(cluster: Mixed, until: Until) -> None:
    await cluster.nodes[0].do("join", rooms=["p0"], room="x")
    await until(lambda: "x" in cluster.ours[0].manager.rooms_of("p0"))
    await cluster.ours[1].server.enter_room(cluster.sids[0], "x")
    cluster.ours[1].manager.emit_now("joined", [], ["x"])
    await until(lambda: cluster.nodes[0].got["n0"] == [["joined"]] and cluster.sockets[0].got == [["joined"]])
    await cluster.nodes[1].do("leave", rooms=["x"], room="x")
    await until(lambda: "x" not in cluster.ours[0].manager.rooms_of("p0"))
    cluster.ours[1].manager.emit_now("joined", [], ["x"])
    cluster.ours[1].manager.emit_now("end", [], ["all"])
    await until(lambda: all(["end"] in got for got in cluster.received))
    assert [got.count(["joined"]) for got in cluster.received] == [1, 0, 1, 0]


async def test_disconnect_from_elsewhere(cluster: Mixed, until: Until) -> None:
    theirs = await cluster.nodes[0].client("going")
    await cluster.ours[0].client("going")
    await cluster.nodes[1].do("disconnect", rooms=["going"])
    await until(lambda: not cluster.ours[0].manager.is_connected("going", "/"))
    await cluster.ours[1].server.disconnect(theirs)
    await until(lambda: ["disconnect", "io server disconnect"] in cluster.nodes[0].got["going"])


async def test_fetch_sockets_from_each(cluster: Mixed) -> None:
    everybody = {*cluster.sids, "p0", "p1"}
    for peer in cluster.nodes:
        theirs = await peer.do("fetch", rooms=["all"])
        assert {socket["id"] for socket in theirs} == everybody
        assert all("all" in socket["rooms"] for socket in theirs)
    for node in cluster.ours:
        found, complete = await node.manager.requests.fetch_sockets(["all"])
        assert complete
        assert {socket.id for socket in found} == everybody
        assert {socket.id: socket.data for socket in found}[cluster.sids[0]] == {"from": "node"}


async def answer(cluster: Mixed, until: Until) -> None:
    """Our sockets ack what they are asked."""
    for i, socket in enumerate(cluster.sockets):
        await until(lambda socket=socket: socket.asked)
        await socket.ack({"ack": f"p{i}"})


@pytest.mark.parametrize("who", ["node", "ours"])
async def test_broadcast_with_acks(cluster: Mixed, until: Until, who: str) -> None:
    if who == "node":
        asking = asyncio.create_task(cluster.nodes[0].do("ack", rooms=["all"], event="ask", args=[1]))
        await answer(cluster, until)
        acks = await asking
    else:
        ours = asyncio.create_task(cluster.ours[0].manager.requests.emit_with_ack("all", "ask", [1], 3000))
        await answer(cluster, until)
        acks, complete = await ours
        assert complete
    assert sorted(ack["ack"] for ack in acks) == ["n0", "n1", "p0", "p1"]


async def test_an_ack_of_one_remote_socket(cluster: Mixed, until: Until) -> None:
    for sid, name in zip(cluster.sids, ("n0", "n1"), strict=True):
        acks = await cluster.ours[0].manager.requests.emit_with_ack(sid, "ask", [], 3000, single=True)
        assert acks == ([{"ack": name}], True)
    asking = asyncio.create_task(cluster.nodes[1].do("ack", rooms=["p1"], event="ask"))
    await until(lambda: cluster.sockets[1].asked)
    await cluster.sockets[1].ack("yes")
    assert await asking == ["yes"]


async def test_server_side_emit(cluster: Mixed, until: Until) -> None:
    told: list[Any] = []
    for node in cluster.ours:
        node.manager.requests.handlers["double"] = lambda number: number * 2
        node.manager.requests.handlers["note"] = told.append
    assert await cluster.ours[0].manager.requests.server_side_emit("double", [21], 3000) == ([42] * 3, True)
    assert await cluster.nodes[0].do("serverSide", event="double", args=[4]) == [8] * 3
    await cluster.nodes[0].do("serverSidePlain", event="note", args=["from node"])
    assert await cluster.ours[0].manager.requests.server_side_emit("note", ["from ours"]) == ([], True)
    await until(lambda: sorted(told) == ["from node", "from node", "from ours"])
