"""Two managers on one Redis exchange everything."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.cluster import wire
from moorage.errors import BackplaneUnavailable, BackplaneUnknown

from ..valkey import Valkey
from .nodes import Node

StartNode = Callable[..., Awaitable[Node]]
Until = Callable[..., Awaitable[None]]


async def test_emit_reaches_each_socket_once(start_node: StartNode, until: Until) -> None:
    here, there = await start_node(), await start_node()
    a, b = await here.client("a", "r1", "r2"), await there.client("b", "r1", "r2")
    c, d = await there.client("c", "r2", "no"), await there.client("d")
    here.manager.emit_now("hello", [1, {"x": b"\x00"}], ["r1", "r2"], ["no"])
    assert a.events == ["hello"]
    await until(lambda: b.got)
    here.manager.emit_now("end", [], [])
    await until(lambda: d.got and c.got and len(b.got) == 2)
    assert b.got[0] == ["hello", 1, {"x": {"_placeholder": True, "num": 0}}, b"\x00"]
    assert (a.events, b.events, c.events, d.events) == (["hello", "end"], ["hello", "end"], ["end"], ["end"])


async def test_python_socketio_face(start_node: StartNode, until: Until) -> None:
    here, there = await start_node(), await start_node()
    a, b = await here.client("a"), await there.client("b")
    await here.server.enter_room("b", 5)
    await until(lambda: there.manager.rooms_of("b") == {"5"})
    await here.server.enter_room("a", 5)
    assert here.manager.join("a", 6) and here.manager.leave("a", "6")  # type: ignore[arg-type]
    await there.server.emit("tuple", (1, 2), room=5, skip_sid="b")
    await until(lambda: a.got)
    assert (a.got, b.got) == ([["tuple", 1, 2]], [])
    await here.server.leave_room("b", "5")
    await until(lambda: not there.manager.rooms_of("b"))
    await there.server.close_room(5)
    await until(lambda: not here.manager.rooms_of("a"))
    await there.server.emit("only", to="a", ignore_queue=True)
    await here.server.emit("own", to="a")
    await here.server.disconnect("b")
    await until(lambda: not there.manager.is_connected("b", "/"))
    assert a.events == ["tuple", "own"]


async def test_room_changes_by_peers_are_told(start_node: StartNode, until: Until) -> None:
    here, there = await start_node(), await start_node()
    await there.client("b")
    told: list[Any] = []
    there.manager.on_join.append(lambda *change: told.append(("join", *change)))
    there.manager.on_leave.append(lambda *change: told.append(("leave", *change)))
    await here.server.enter_room("b", "r")
    await here.server.close_room("r")
    await until(lambda: len(told) == 2)
    assert told == [("join", "/", "r", "b"), ("leave", "/", "r", "b")]


async def test_emit_with_a_callback_reaches_the_other_node(start_node: StartNode, until: Until) -> None:
    here, there = await start_node(), await start_node()
    a, b = await here.client("a"), await there.client("b")
    acks: list[Any] = []

    async def on_ack(*values: Any) -> None:
        acks.append(values)

    await here.server.emit("ask", 1, to="b", callback=on_ack)
    await until(lambda: b.asked)
    await b.ack("from b", b"second")
    await here.server.emit("ask", 1, to="a", callback=on_ack)
    await a.ack("from a")
    await until(lambda: len(acks) == 2)
    assert sorted(acks) == [("from a",), ("from b", b"second")]


@pytest.mark.parametrize("options", [{}, {"compat": "0.2"}], ids=str)
@pytest.mark.parametrize("values", [(), (None,), ({"r": 1},), ("ack", "second")], ids=str)
async def test_a_call_has_one_result_wherever_the_socket_is(
    start_node: StartNode, until: Until, options: dict[str, Any], values: tuple[Any, ...]
) -> None:
    here, there = await start_node(**options), await start_node(**options)
    sockets = [await here.client("a"), await there.client("b")]
    while await here.manager.requests.node_count() < 2:
        await asyncio.sleep(0.005)
    results = []
    for socket in sockets:
        call = asyncio.create_task(here.server.call("ask", 2, to=socket.sid, timeout=5))
        await until(lambda socket=socket: socket.asked)
        await socket.ack(*values)
        results.append(await call)
    assert results == [values if len(values) > 1 else values[0] if values else None] * 2


async def test_volatile_is_left_out_where_a_socket_is_behind(start_node: StartNode, until: Until) -> None:
    here, there = await start_node(), await start_node()
    b, slow = await there.client("b", "r"), await there.client("slow", "r")
    slow.behind = True
    here.manager.emit_now("volatile", [], ["r"], volatile=True)
    here.manager.emit_now("e", [], ["r"])
    await until(lambda: len(b.got) == 2)
    assert slow.events == ["e"]


async def test_an_emit_to_a_socket_here_stays_here(start_node: StartNode, valkey: Valkey) -> None:
    here = await start_node()
    a = await here.client("a")
    here.manager.emit_now("own", [], ["a"])
    await here.server.emit("own", to="a")
    assert a.events == ["own", "own"]
    assert not valkey.client.exists("socket.io")


async def test_what_cannot_be_sent_goes_nowhere(start_node: StartNode) -> None:
    here = await start_node()
    a = await here.client("a", "r")
    with pytest.raises(TypeError):
        here.manager.emit_now("e", [object()], ["r"])
    with pytest.raises(TypeError):
        await here.manager.emit_counted("k", "update", {"x": b"bytes"}, ["r"])
    assert a.got == []
    assert here.manager.writer.pending == 0


async def test_counted_updates_have_one_order_everywhere(start_node: StartNode, until: Until) -> None:
    nodes = [await start_node(), await start_node()]
    sockets = [await node.client(f"s{i}", "user:1") for i, node in enumerate(nodes)]

    async def write(node: Node, name: str) -> list[int]:
        return [
            await node.manager.emit_counted("user:1", "update", {"by": name, "no": n}, ["user:1"])
            for n in range(100)
        ]

    seqs = await asyncio.gather(write(nodes[0], "x"), write(nodes[1], "y"), write(nodes[0], "z"))
    assert sorted(seq for one in seqs for seq in one) == list(range(1, 301))
    assert await nodes[0].manager.emit_counted("user:2", "update", {}, ["nobody"]) == 1
    await until(lambda: all(len(s.got) == 300 for s in sockets))
    assert sockets[0].got == sockets[1].got
    assert [event[1]["seq"] for event in sockets[0].got] == list(range(1, 301))


async def test_a_counted_payload_may_hold_anything_json_has(start_node: StartNode, until: Until) -> None:
    here = await start_node()
    a = await here.client("a", "r")
    payload = {"seq": "old", "body": {"seq": 9, "text": 'a "quoted" \\ "seq":1 é\ud800'}, "id": None}
    assert await here.manager.emit_counted("k", "update", payload, ["r"]) == 1
    assert payload["seq"] == 1
    await until(lambda: a.got)
    expected = {"seq": 1, "body": {"seq": 9, "text": 'a "quoted" \\ "seq":1 é�'}, "id": None}
    assert a.got == [["update", expected]]


async def test_local_delivery_while_redis_is_frozen(
    start_node: StartNode, valkey: Valkey, until: Until
) -> None:
    here, there = await start_node(), await start_node()
    a, b = await here.client("a", "r"), await there.client("b", "r")
    valkey.freeze()
    for n in range(10):
        here.manager.emit_now("e", [n], ["r"])
        assert len(a.got) == n + 1  # already, before the loop turns
    with pytest.raises((BackplaneUnavailable, BackplaneUnknown)):
        await here.manager.emit_counted("k", "update", {}, ["r"])
    await until(lambda: not here.backplane.available)
    here.manager.emit_now("volatile", [], ["r"], volatile=True)
    here.manager.emit_now("e", [10], ["r"])
    valkey.thaw()
    await until(lambda: len([e for e in b.events if e == "e"]) >= 11)
    assert [event[1] for event in b.got if event[0] == "e"] == list(range(11))
    assert [e for e in a.events if e != "update"] == ["e"] * 10 + ["volatile", "e"]
    assert "volatile" not in b.events


async def test_namespaces_come_and_go(start_node: StartNode, valkey: Valkey, until: Until) -> None:
    here, there = await start_node(), await start_node()
    await here.client("a", namespace="/chat")
    b = await there.client("b", "r", namespace="/chat")
    await until(lambda: b"socket.io#/chat#" in valkey.client.pubsub_channels())
    here.manager.emit_now("e", [], ["r"], namespace="/chat")
    await until(lambda: b.got)
    here.manager.emit_now("e", [], ["r"])
    await here.manager.disconnect("a", "/chat", ignore_queue=True)
    await there.manager.disconnect("b", "/chat", ignore_queue=True)
    await until(lambda: b"socket.io#/chat#" not in valkey.client.pubsub_channels())
    assert b"socket.io#/#" in valkey.client.pubsub_channels()
    assert len(b.got) == 1


async def test_several_streams_and_the_negative_ones_of_node(
    start_node: StartNode, valkey: Valkey, until: Until
) -> None:
    here, there = await start_node(stream_count=4), await start_node(stream_count=4)
    namespaces = ["/", "/chat", "/notifications", "/dashboard"]
    sockets = [await there.client("b", "r", namespace=n) for n in namespaces]
    await until(
        lambda: there.manager.reader._places.keys() >= {wire.stream_of("socket.io", n, 4) for n in namespaces}
    )
    for namespace in namespaces:
        here.manager.emit_now("e", [namespace], ["r"], namespace=namespace)
    await until(lambda: all(s.got for s in sockets))
    assert [s.got for s in sockets] == [[["e", n]] for n in namespaces]
    assert valkey.client.exists("socket.io--3")
