"""Socket.IO's broadcasting and utility methods, over two nodes and over the write-only emitter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.cluster import Emitter
from moorage.errors import BackplaneUnavailable

from ..valkey import Valkey, free_port
from .nodes import FakeSocket, Node

Until = Callable[..., Awaitable[None]]
StartNode = Callable[..., Awaitable[Node]]

CARRIERS: list[dict[str, Any]] = [{}, {"sharded_pubsub": True}, {"compat": "0.2"}]


@pytest.fixture(params=CARRIERS, ids=["0.3", "sharded", "0.2"])
async def pair(request: pytest.FixtureRequest, start_node: StartNode, until: Until) -> list[Node]:
    nodes = [await start_node(channel_prefix="mine", **request.param) for _ in range(2)]
    for node in nodes:
        while await node.manager.requests.node_count() < 2:
            await asyncio.sleep(0.005)
    return nodes


@pytest.fixture
async def sockets(pair: list[Node]) -> list[FakeSocket]:
    here, there = pair
    return [
        await here.client("h", "all", "a"),
        await there.client("t1", "all", "a"),
        await there.client("t2", "all"),
    ]


async def test_to_and_except(pair: list[Node], sockets: list[FakeSocket], until: Until) -> None:
    here, there = pair
    await here.manager.to("all").except_("a").emit("one", 1, {"x": b"\x00"})
    await here.manager.to(["a", "nobody"]).except_("t1").emit("two")
    await there.manager.volatile.emit("three", 3)
    await here.manager.local.emit("four")
    await here.manager.in_("all").emit("end")
    await until(lambda: all({"three", "end"} <= set(socket.events) for socket in sockets))
    assert [sorted(socket.events) for socket in sockets] == [
        ["end", "four", "three", "two"],
        ["end", "three"],
        ["end", "one", "three"],
    ]


async def test_emit_with_ack(pair: list[Node], sockets: list[FakeSocket], until: Until) -> None:
    here, _ = pair
    asking = asyncio.ensure_future(here.manager.to("all").timeout(5000).emit_with_ack("ask", 1))
    await until(lambda: all(socket.asked for socket in sockets))
    for socket in sockets:
        await socket.ack(socket.sid)
    acks = await asking
    assert acks.complete
    assert sorted(acks) == sorted(socket.sid for socket in sockets)


async def test_acks_that_do_not_come(pair: list[Node], sockets: list[FakeSocket], until: Until) -> None:
    here, _ = pair
    asking = asyncio.ensure_future(here.manager.to("all").timeout(1500).emit_with_ack("ask", 1))
    await until(lambda: all(socket.asked for socket in sockets))
    await sockets[1].ack("only me")
    acks = await asking
    assert not acks.complete
    assert acks == ["only me"]
    # 0 is python-socketio's counter; nodes that were asked stop waiting at the same timeout
    await until(lambda: all(set(ids) <= {0} for node in pair for ids in node.manager.callbacks.values()))


async def test_remote_sockets(pair: list[Node], sockets: list[FakeSocket], until: Until) -> None:
    here, there = pair
    there.manager.socket_data = lambda namespace, sid: {"from": sid}
    found = await here.manager.in_("a").fetch_sockets()
    assert found.complete
    assert {socket.id: socket.rooms for socket in found} == {
        "h": frozenset({"h", "all", "a"}),
        "t1": frozenset({"t1", "all", "a"}),
    }
    assert len(await here.manager.local.fetch_sockets()) == 1
    assert len(await here.manager.fetch_sockets()) == 3
    remote = next(socket for socket in found if socket.id == "t1")
    assert remote.data == {"from": "t1"}
    await remote.join("new")
    await until(lambda: "new" in there.manager.rooms_of("t1"))
    await remote.leave(["new", "a"])
    await until(lambda: there.manager.rooms_of("t1") == {"all"})
    await remote.emit("only it", 1)
    await until(lambda: sockets[1].events == ["only it"])
    asking = asyncio.ensure_future(remote.emit_with_ack("ask"))
    await until(lambda: sockets[1].asked)
    await sockets[1].ack("yes", "no")
    assert await asking == "yes"
    await remote.volatile.emit("perhaps")
    await until(lambda: sockets[1].events[-1] == "perhaps")
    asking = asyncio.ensure_future(remote.timeout(5000).emit_with_ack("ask"))
    await until(lambda: sockets[1].asked)
    await sockets[1].ack("yes")
    assert await asking == "yes"
    impatient = (await here.manager.in_("t1").timeout(1000).fetch_sockets())[0]
    for asked in (impatient, remote.timeout(50), remote.volatile.timeout(50)):
        with pytest.raises(TimeoutError):
            await asked.emit_with_ack("ask")
    await remote.disconnect()
    await until(lambda: not there.manager.is_connected("t1", "/"))


async def test_utility_methods(pair: list[Node], sockets: list[FakeSocket], until: Until) -> None:
    here, there = pair
    await here.manager.in_("all").except_("h").sockets_join(["x", 5])
    assert here.manager.rooms_of("h") == {"all", "a"}
    await until(lambda: there.manager.rooms_of("t2") == {"all", "x", "5"})
    await here.manager.in_("x").sockets_leave("x")
    await until(lambda: there.manager.rooms_of("t2") == {"all", "5"})
    await here.manager.sockets_join("everybody")
    await until(lambda: "everybody" in there.manager.rooms_of("t2"))
    await here.manager.sockets_leave(["everybody", "5"])
    await until(lambda: there.manager.rooms_of("t2") == {"all"})
    await here.manager.emit("hello", 1)
    await until(lambda: sockets[2].got == [["hello", 1]])
    await here.manager.in_("a").disconnect_sockets()
    assert not here.manager.is_connected("h", "/")
    await until(lambda: not there.manager.is_connected("t1", "/"))
    assert there.manager.is_connected("t2", "/")


async def test_server_side_emit(pair: list[Node], until: Until) -> None:
    here, there = pair
    got: list[Any] = []

    @there.manager.on("hello")
    async def hello(*args: Any) -> str:
        got.append(args)
        return "hi"

    await here.manager.server_side_emit("hello", 1, b"\x00")
    await until(lambda: got == [(1, b"\x00")])
    answers = await here.manager.server_side_emit_with_ack("hello", 2)
    assert answers.complete
    assert answers == ["hi"]
    assert await here.manager.server_side_emit_with_ack("nobody handles this") == [None]


async def test_namespaces_are_apart(pair: list[Node], until: Until) -> None:
    here, there = pair
    main, other = await there.client("m", "r"), await there.client("o", "r", namespace="/other")
    mine = await here.client("mine", namespace="/other")
    while await here.manager.requests.node_count("/other") < 2:
        await asyncio.sleep(0.005)
    await here.manager.of("/other").to("r").emit("x")
    await until(lambda: other.events == ["x"])
    assert {socket.id for socket in await here.manager.of("/other").fetch_sockets()} == {"o", "mine"}
    assert not main.events
    assert not mine.events


async def test_several_streams_with_negative_hashes(start_node: StartNode, until: Until) -> None:
    here, there = [await start_node(stream_count=4) for _ in range(2)]
    for namespace in ("/notifications", "/chat", "/"):
        socket = await there.client("t", namespace=namespace)
        await until(lambda ns=namespace: there.manager.reader.origin(there.manager._stream(ns)) is not None)
        await here.manager.of(namespace).emit("x", namespace)
        await until(lambda socket=socket: socket.events == ["x"])


async def test_emitter(valkey: Valkey, start_node: StartNode, until: Until) -> None:
    node = await start_node(recovery_secret="x" * 32)
    socket = await node.client("t", "all")
    got: list[Any] = []
    node.manager.on("task", lambda *args: got.append(args))
    async with Emitter(valkey.url) as emitter:
        await emitter.emit("one", ({"x": 1}, b"\x00"), to="all")
        await emitter.to("all").except_("t").emit("not for it")
        await emitter.emit("two", room="all", skip_sid="nobody")
        await emitter.in_("t").sockets_join("late")
        await emitter.to("late").emit("three")
        await emitter.server_side_emit("task", 7)
        await until(lambda: socket.events == ["one", "two", "three"])
        await until(lambda: got == [(7,)])
        await emitter.sockets_join("everybody")
        await until(lambda: "everybody" in node.manager.rooms_of("t"))
        await emitter.sockets_leave("everybody")
        await until(lambda: "everybody" not in node.manager.rooms_of("t"))
        await emitter.disconnect_sockets()
        await until(lambda: not node.manager.is_connected("t", "/"))


async def test_an_emitter_gets_no_answers() -> None:
    emitter = Emitter(f"redis://127.0.0.1:{free_port()}")
    for asking in (
        emitter.call("x"),
        emitter.emit("x", callback=print),
        emitter.to("a").emit_with_ack("x"),
        emitter.to("a").fetch_sockets(),
        emitter.emit_with_ack("x"),
        emitter.fetch_sockets(),
        emitter.server_side_emit_with_ack("x"),
        emitter.of("/").local.emit("x"),
    ):
        with pytest.raises(RuntimeError, match="Emitter"):
            await asyncio.wait_for(asking, 1)


async def test_an_emitter_without_redis_says_so() -> None:
    emitter = Emitter(f"redis://127.0.0.1:{free_port()}")
    with pytest.raises(BackplaneUnavailable):
        await emitter.start(0.1)
    with pytest.raises(BackplaneUnavailable):
        await emitter.emit("x")
    await emitter.stop()
