"""Questions between nodes: what comes, whether it is all, and what never leaves a node."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import ormsgpack
import pytest

from moorage.cluster import wire

from ..valkey import Valkey
from .nodes import Node

StartNode = Callable[..., Awaitable[Node]]
Until = Callable[..., Awaitable[None]]
PUBLIC = "socket.io#/#"


async def test_fetch_sockets(start_node: StartNode) -> None:
    nodes = [await start_node() for _ in range(3)]
    for i, node in enumerate(nodes):
        await node.client(f"s{i}", "all", f"r{i}")
        node.manager.socket_data = lambda namespace, sid, i=i: {"no": i}
    found, complete = await nodes[0].manager.requests.fetch_sockets(["all"], ["r1"])
    assert complete
    assert {
        socket.id: (socket.data, socket.handshake, sorted(map(str, socket.rooms))) for socket in found
    } == {
        "s0": ({"no": 0}, {}, ["all", "r0", "s0"]),
        "s2": ({"no": 2}, {}, ["all", "r2", "s2"]),
    }
    everybody, complete = await nodes[1].manager.requests.fetch_sockets()
    assert (len(everybody), complete) == (3, True)
    assert await nodes[0].manager.requests.node_count() == 3


async def test_data_that_cannot_be_sent_is_left_out(start_node: StartNode) -> None:
    here, there = await start_node(), await start_node()
    await there.client("b")
    there.manager.socket_data = lambda namespace, sid: {"lock": object()}
    found, complete = await here.manager.requests.fetch_sockets()
    assert ([s.id for s in found], found[0].data, complete) == (["b"], {}, True)


async def test_a_silent_node_gives_a_partial_answer(start_node: StartNode, valkey: Valkey) -> None:
    here, there = await start_node(), await start_node()
    await here.client("a")
    await there.client("b")
    spy = valkey.client.pubsub()
    spy.subscribe(PUBLIC)
    spy.get_message(timeout=1)
    found, complete = await here.manager.requests.fetch_sockets(timeout_ms=1500)
    spy.close()
    assert (sorted(s.id for s in found), complete) == (["a", "b"], False)


async def test_a_node_that_goes_ends_the_wait(start_node: StartNode, valkey: Valkey, until: Until) -> None:
    here = await start_node()
    await here.client("a")
    spy = valkey.client.pubsub()
    spy.subscribe(PUBLIC)
    spy.get_message(timeout=1)
    asked = asyncio.create_task(here.manager.requests.fetch_sockets(timeout_ms=30_000))
    await until(lambda: here.manager.requests._questions)
    spy.close()
    found, complete = await asyncio.wait_for(asked, 5)
    assert ([s.id for s in found], complete) == (["a"], False)


async def test_redis_away_gives_what_is_here(start_node: StartNode, valkey: Valkey) -> None:
    here = await start_node()
    a = await here.client("a")
    valkey.kill()
    found, complete = await here.manager.requests.fetch_sockets()
    assert ([s.id for s in found], complete) == (["a"], False)
    asked = asyncio.create_task(here.manager.requests.emit_with_ack("a", "e", [], 1000))
    assert await asked == ([], False)
    assert a.events == ["e"]
    assert await here.manager.requests.server_side_emit("x") == ([], False)


async def test_broadcast_with_acks(start_node: StartNode, until: Until) -> None:
    here, there, other = [await start_node() for _ in range(3)]
    a, b, c = await here.client("a", "r"), await there.client("b", "r"), await there.client("c", "r")
    await other.client("d")
    asked = asyncio.create_task(here.manager.requests.emit_with_ack(["r"], "ask", [1], 5000))
    await until(lambda: a.asked and b.asked and c.asked)
    await a.ack({"from": "a"})
    await b.ack(b"b", "only the first")
    await c.ack()
    values, complete = await asked
    assert complete
    assert {"from": "a"} in values
    assert b"b" in values
    assert None in values


async def test_acks_that_do_not_come(start_node: StartNode, until: Until) -> None:
    here, there = await start_node(), await start_node()
    await here.client("a", "r")
    b = await there.client("b", "r")
    asked = asyncio.create_task(here.manager.requests.emit_with_ack("r", "ask", [], 1500))
    await until(lambda: b.asked)
    await b.ack("b")
    assert await asked == (["b"], False)
    await until(lambda: not any(ack for acks in there.manager.callbacks.values() for ack in acks if ack))
    assert not any(ack for acks in here.manager.callbacks.values() for ack in acks if ack)
    assert not here.manager.requests._questions


async def test_an_ack_of_one_socket_is_enough(start_node: StartNode, until: Until) -> None:
    here, there = await start_node(), await start_node()
    await start_node()
    b = await there.client("b")
    requests = here.manager.requests
    asked = asyncio.create_task(requests.emit_with_ack("b", "ask", [], 30_000, single=True))
    await until(lambda: b.asked)
    await b.ack(7)
    assert await asyncio.wait_for(asked, 5) == ([7], True)
    assert await requests.emit_with_ack("nobody", "ask", [], 5000) == ([], True)


async def test_server_side_emit(start_node: StartNode, until: Until) -> None:
    here, there, _plain = [await start_node() for _ in range(3)]
    got: list[Any] = []

    async def double(number: int) -> int:
        return number * 2

    def fail() -> None:
        raise RuntimeError("no")

    here.manager.requests.handlers["double"] = double  # not asked: the caller is left out
    there.manager.requests.handlers.update(double=double, note=got.append, fail=fail, odd=lambda: object())
    emit = here.manager.requests.server_side_emit
    values, complete = await emit("double", [21], 5000)
    assert complete
    assert sorted(values, key=str) == [42, None]  # None: the node without a handler
    assert await emit("note", ["x"]) == ([], True)
    await until(lambda: got)
    assert got == ["x"]
    assert await emit("fail", [], 5000) == ([None, None], True)
    assert await emit("odd", [], 5000) == ([None, None], True)


async def test_answers_are_what_node_expects(start_node: StartNode, valkey: Valkey) -> None:
    """A hand-written caller in Node's format, without our code."""
    here = await start_node()
    await here.client("a", "r")
    spy = valkey.client.pubsub()
    spy.subscribe("socket.io#/#node#")
    spy.get_message(timeout=1)

    async def ask(**message: Any) -> dict[str, Any]:
        payload = ormsgpack.packb({"uid": "node", "nsp": "/", **message})
        valkey.client.publish(PUBLIC, payload)
        for _ in range(2000):
            found = spy.get_message()
            if found and found["type"] == "message":
                return dict(ormsgpack.unpackb(found["data"]))
            await asyncio.sleep(0.005)
        raise AssertionError("no answer")

    opts = {"rooms": ["r"], "except": [], "flags": {}}
    uid = here.manager.uid
    assert await ask(type=7, data={"opts": opts, "requestId": "1"}) == {
        "type": 8, "uid": uid, "nsp": "/",
        "data": {"requestId": "1", "sockets": [{"id": "a", "handshake": {}, "rooms": ["a", "r"], "data": {}}]},
    }  # fmt: skip
    none = {"rooms": ["none"], "except": [], "flags": {"timeout": 50}}
    assert await ask(type=3, data={"opts": none, "packet": {"type": 2, "data": ["e"]}, "requestId": "2"}) == {
        "type": 11, "uid": uid, "nsp": "/", "data": {"requestId": "2", "clientCount": 0},
    }  # fmt: skip
    assert await ask(type=9, data={"packet": ["unknown"], "requestId": "3"}) == {
        "type": 10, "uid": uid, "nsp": "/", "data": {"requestId": "3", "packet": None},
    }  # fmt: skip
    spy.close()


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\xc1", b"not msgpack", ormsgpack.packb([1]), ormsgpack.packb({"type": 3}),
        ormsgpack.packb({"type": 7, "uid": "u", "nsp": "/", "data": None}),
        ormsgpack.packb({"type": 3, "uid": "u", "nsp": "/", "data": {"packet": None, "requestId": "r"}}),
        ormsgpack.packb({"type": 99, "uid": "u", "nsp": "/", "data": {}}),
        ormsgpack.packb({"type": 3, "uid": "u", "nsp": "/", "data": {
            "packet": {"data": [5]}, "opts": {}, "requestId": "r"}}),
    ],
)  # fmt: skip
async def test_junk_is_counted(start_node: StartNode, valkey: Valkey, until: Until, payload: bytes) -> None:
    here, there = await start_node(), await start_node()
    await there.client("b")
    valkey.client.publish(PUBLIC, payload)
    valkey.client.publish(wire.private_channel("socket.io", "/", there.manager.uid), payload)
    await until(lambda: there.manager.requests.malformed)
    found, complete = await here.manager.requests.fetch_sockets()
    assert ([s.id for s in found], complete) == (["b"], True)


async def test_answers_come_back_after_the_subscriptions_were_killed(
    start_node: StartNode, valkey: Valkey, until: Until
) -> None:
    here, there = await start_node(), await start_node()
    await there.client("b")
    generations = [node.backplane.generation for node in (here, there)]
    for _ in range(3):
        valkey.kill_clients("pubsub")
        # Each of them: one that is behind does not know yet that it is heard again.
        await until(
            lambda: (
                here.backplane.generation > generations[0]  # noqa: B023
                and there.backplane.generation > generations[1]  # noqa: B023
                and valkey.client.pubsub_numsub(PUBLIC)[0][1] == 2
            )
        )
        generations = [node.backplane.generation for node in (here, there)]
    found, complete = await here.manager.requests.fetch_sockets()
    assert ([s.id for s in found], complete) == (["b"], True)
