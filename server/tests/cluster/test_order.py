"""With recovery on, what acts on the sockets of this process at once does not overtake what was emitted before it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ..valkey import Valkey
from .nodes import FakeSocket, Node

Until = Callable[..., Awaitable[None]]
Act = Callable[[Node], Awaitable[object]]
SECRET = "a key of the tests, long enough to sign"


@pytest.fixture
async def node(start_node: Callable[..., Awaitable[Node]]) -> Node:
    return await start_node(recovery_secret=SECRET)


async def client(node: Node, sid: str = "s", *, aware: bool = True) -> FakeSocket:
    """In the room ``all``; ``aware``: of offsets."""
    socket = await node.client(sid, "all")
    assert node.manager.recovery is not None
    assert bool(node.manager.recovery.connected("/", sid, aware=aware)) is aware
    return socket


GOING: dict[str, Act] = {
    "disconnect": lambda node: node.server.disconnect("s"),
    "disconnect_sockets": lambda node: node.manager.in_("s").disconnect_sockets(),
    "leave_room": lambda node: node.server.leave_room("s", "all"),
    "close_room": lambda node: node.server.close_room("all"),
    "sockets_leave": lambda node: node.manager.in_("all").sockets_leave("all"),
}


@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize("act", GOING.values(), ids=GOING.keys())
async def test_who_goes_gets_what_was_emitted_before(node: Node, act: Act, aware: bool) -> None:
    socket = await client(node, aware=aware)
    await node.server.emit("bye", 1, room="all")
    await act(node)
    assert socket.events == ["bye"]


@pytest.mark.parametrize("act", [GOING["disconnect"], GOING["disconnect_sockets"]])
async def test_a_socket_gets_its_own_last_event(node: Node, act: Act, until: Until) -> None:
    socket = await client(node)
    await node.server.emit("bye", 1, to="s")
    await act(node)
    assert socket.events == ["bye"]
    assert not node.manager.is_connected("s", "/")


JOINING: dict[str, Act] = {
    "enter_room": lambda node: node.server.enter_room("s", "new"),
    "sockets_join": lambda node: node.manager.in_("s").sockets_join("new"),
}


@pytest.mark.parametrize("act", JOINING.values(), ids=JOINING.keys())
async def test_who_joins_gets_nothing_from_before(node: Node, act: Act, until: Until) -> None:
    socket, member = await client(node), await client(node, "t")
    node.manager.join("t", "new")
    await node.server.emit("joined", 1, room="new")
    await act(node)
    await node.server.emit("later", 1, room="new")
    await until(lambda: member.events == ["joined", "later"])
    assert socket.events == ["later"]


AFTER: dict[str, Act] = {
    "call": lambda node: node.server.call("two", to="s", timeout=10),
    "emit_with_ack": lambda node: node.manager.to("all").timeout(10_000).emit_with_ack("two"),
    "volatile": lambda node: node.manager.to("all").volatile.emit("two"),
    "local": lambda node: node.manager.local.emit("two"),
}


@pytest.mark.parametrize("aware", [True, False])
@pytest.mark.parametrize("act", AFTER.values(), ids=AFTER.keys())
async def test_other_ways_to_emit_do_not_overtake(node: Node, act: Act, aware: bool, until: Until) -> None:
    socket = await client(node, aware=aware)

    async def acting() -> None:
        await act(node)

    for turn in range(1, 11):
        await node.server.emit("one", {}, room="all")
        acts = asyncio.create_task(acting())
        await until(lambda turn=turn: len(socket.got) == 2 * turn)
        if socket.asked:
            await socket.ack("yes")
        await asyncio.wait_for(acts, 10)
        assert socket.events == ["one", "two"] * turn


async def test_clients_without_offsets_get_one_order(node: Node, until: Until) -> None:
    socket = await client(node, aware=False)
    await node.server.emit("one", room="all")
    await node.server.emit("two", to="s")
    await until(lambda: socket.events == ["one", "two"])


async def test_with_nothing_under_way_nothing_waits(node: Node, until: Until) -> None:
    socket = await client(node)
    await node.server.emit("one", {}, room="all")
    await until(lambda: socket.events == ["one"])
    with pytest.raises(StopIteration):  # it ends without a turn of the loop
        node.manager.settled().send(None)
    with pytest.raises(StopIteration):
        node.manager.leave_room("s", "/", "all").send(None)
    assert not node.manager.rooms_of("s")


@pytest.mark.parametrize("act", [GOING["leave_room"], GOING["disconnect"], JOINING["enter_room"]])
async def test_nothing_hangs_while_redis_is_away(node: Node, valkey: Valkey, act: Act, until: Until) -> None:
    socket = await client(node)
    await node.server.emit("one", {}, room="all")
    await until(lambda: socket.events == ["one"])
    valkey.freeze()
    try:
        await node.server.emit("two", {}, room="all")
        async with asyncio.timeout(5):
            await act(node)
        assert socket.events == ["one", "two"]
    finally:
        valkey.thaw()


async def test_a_socket_that_goes_while_it_is_waited_for(node: Node, until: Until) -> None:
    socket = await client(node)
    await node.server.emit("one", {}, room="all")
    entering = asyncio.create_task(node.server.enter_room("s", "new"))
    await asyncio.sleep(0)
    await node.manager.disconnect("s", "/", ignore_queue=True)
    await asyncio.wait_for(entering, 5)  # no error: as for one that another node may have
    assert not node.manager.members("new")
    assert socket.events == []
