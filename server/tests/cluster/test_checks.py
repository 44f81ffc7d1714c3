"""What callers pass wrongly is refused where they pass it, and what other nodes send wrongly reaches no client."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import socketio

from moorage.cluster import AsyncServer, BroadcastOperator, Emitter, RedisStreamsManager, RemoteSocket
from moorage.cluster.wire import RemoteSocket as Described

from ..valkey import Valkey, free_port
from .nodes import Node

Until = Callable[..., Awaitable[None]]
StartNode = Callable[..., Awaitable[Node]]
Way = Callable[[Any], Awaitable[Any]]

URL = "redis://127.0.0.1"
SECRET = "x" * 32
NO_TEXT = [None, True, 5, b"x", ["l"]]
RESERVED = ["connect", "connect_error", "disconnect", "disconnecting", "newListener", "removeListener"]
NOBODY: list[Any] = [[], (), {}, set()]


# -- names of events -----------------------------------------------------------------------------------
def ways() -> dict[str, Way]:
    """Everything that sends an event to clients; none of it gets as far as Redis here."""
    node, emitter = Node(URL), Emitter(URL)
    socket = RemoteSocket(BroadcastOperator(node.manager), Described("some"))
    return {
        "sio.emit": node.server.emit,
        "sio.emit to": lambda event: node.server.emit(event, to="a"),
        "sio.call": lambda event: node.server.call(event, to="a", timeout=0.1),
        "manager.emit": node.manager.emit,
        "manager.emit_with_ack": node.manager.emit_with_ack,
        "operator": node.manager.to("a").emit,
        "operator with ack": node.manager.to("a").emit_with_ack,
        "volatile": node.manager.volatile.emit,
        "nobody": node.manager.to([]).emit,
        "socket": socket.emit,
        "socket with ack": socket.timeout(50).emit_with_ack,
        "emitter": emitter.emit,
        "emitter to": emitter.to("a").emit,
    }


@pytest.mark.parametrize("way", ways())
async def test_what_is_no_name_of_an_event(way: str) -> None:
    send = ways()[way]
    for event in NO_TEXT:
        with pytest.raises(TypeError, match="name of an event"):
            await send(event)
    for event in RESERVED:
        with pytest.raises(ValueError, match="reserved"):
            await send(event)


async def test_what_is_no_name_of_an_event_between_servers() -> None:
    manager = Node(URL).manager
    for tell in (manager.server_side_emit, manager.server_side_emit_with_ack, Emitter(URL).server_side_emit):
        for event in ("connect", "connection", "new_namespace"):
            with pytest.raises(ValueError, match="reserved"):
                await tell(event)
        with pytest.raises(TypeError, match="name of an event"):
            await tell(5)  # type: ignore[arg-type]
    for wrong in (5, None):
        with pytest.raises(TypeError, match="name of an event"):
            manager.on(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reserved"):
        manager.on("connection", print)
    with pytest.raises(TypeError, match="callable"):
        manager.on("x", "y")  # type: ignore[arg-type]


@pytest.mark.parametrize("recovery", [{}, {"recovery_secret": SECRET}], ids=["plain", "recovery"])
async def test_such_names_from_other_nodes_reach_no_client(
    valkey: Valkey, start_node: StartNode, until: Until, recovery: dict[str, str]
) -> None:
    node = await start_node(**recovery)
    socket = await node.client("t", "all")
    wrong = [
        *(json.dumps([name, 1]) for name in [*RESERVED, *NO_TEXT[:3]]),
        r'["\u0063onnect"]',
        '[ "connect"]',
    ]
    for packet in [*wrong, '["right"]']:
        data = f'{{"packet":{{"type":2,"data":{packet}}},"opts":{{"rooms":[],"except":[],"flags":{{}}}}}}'
        valkey.client.xadd("socket.io", {"uid": "other", "nsp": "/", "type": "3", "data": data})
    await until(lambda: "right" in socket.events)
    assert socket.events == ["right"]
    assert node.manager.reader.poisoned == len(wrong)


# -- rooms, namespaces, times --------------------------------------------------------------------------
@pytest.mark.parametrize("rooms", NOBODY, ids=str)
async def test_no_rooms_are_nobody(start_node: StartNode, until: Until, rooms: Any) -> None:
    here, there = await start_node(), await start_node()
    sockets = [await here.client("h", "a"), await there.client("t", "a")]
    nobody = here.manager.in_(rooms)
    await nobody.emit("x")
    assert await nobody.emit_with_ack("x") == []
    assert await nobody.fetch_sockets() == []
    await nobody.sockets_join("b")
    await nobody.sockets_leave("a")
    await nobody.disconnect_sockets(close=True)
    await here.server.emit("x", 1, room=rooms)
    await here.server.emit("x", 1, room=rooms, callback=print)
    await here.manager.emit("x", to=rooms)
    assert list(here.manager.get_participants("/", rooms)) == []
    async with Emitter(here.backplane) as emitter:
        await emitter.emit("x", to=rooms)
        await emitter.in_(rooms).disconnect_sockets()
    await nobody.to("a").emit("end")
    await until(lambda: all(socket.events for socket in sockets))
    assert [socket.events for socket in sockets] == [["end"], ["end"]]
    assert [here.manager.rooms_of("h"), there.manager.rooms_of("t")] == [{"a"}, {"a"}]


async def test_no_rooms_are_nobody_for_the_server_with_recovery(until: Until) -> None:
    manager = RedisStreamsManager(URL, recovery_secret=SECRET)
    server = AsyncServer(client_manager=manager, async_mode="asgi")
    emitted: list[Any] = []
    manager.emit_recoverable = lambda *args: emitted.append(args)  # type: ignore[method-assign]
    await server.emit("x", 1, to=[])
    await server.send("x", to=[])
    assert not emitted
    with pytest.raises(ValueError, match="broadcast"):
        await server.call("x", to=[])
    await server.emit("x", 1)
    assert len(emitted) == 1


def test_what_is_no_room_and_no_namespace() -> None:
    manager = Node(URL).manager
    for wrong in (None, b"x"):
        with pytest.raises(TypeError, match="room"):
            manager.to(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="namespace"):
        manager.of(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="slash"):
        manager.of("admin")


@pytest.mark.parametrize("wrong", ["5", None, True, 0, -1, math.nan, math.inf, 2**31], ids=str)
def test_what_is_no_time(wrong: Any) -> None:
    manager = Node(URL).manager
    socket = RemoteSocket(BroadcastOperator(manager), Described("some"))
    for timeout in (manager.timeout, manager.to("a").timeout, socket.timeout, Emitter(URL).to("a").timeout):
        with pytest.raises((TypeError, ValueError), match="milliseconds"):
            timeout(wrong)


# -- options -------------------------------------------------------------------------------------------
COMMON = [
    {"stream_name": None}, {"stream_name": ""}, {"stream_count": 0}, {"stream_count": "3"}, {"stream_count": True},
    {"stream_maxlen": 0}, {"channel_prefix": 5}, {"sharded_pubsub": "yes"},
]  # fmt: skip
SERVER = [
    {"stream_read_count": -1}, {"compat": "0.1"}, {"namespaces": "/"}, {"namespaces": ("admin",)}, {"namespaces": 5},
    {"recovery_secret": "abc"}, {"recovery_secret": ""}, {"recovery_secret": 5}, {"recovery_window_ms": -1},
    {"recovery_window_ms": 2**31}, {"recovery_window_ms": 1.5},
]  # fmt: skip


@pytest.mark.parametrize("option", [*COMMON, *SERVER], ids=str)
def test_options_are_refused_by_name(option: dict[str, Any]) -> None:
    (name,) = option
    name = "slash" if option == {"namespaces": ("admin",)} else name
    with pytest.raises((TypeError, ValueError), match=name):
        RedisStreamsManager(URL, **option)
    if option in COMMON:
        with pytest.raises((TypeError, ValueError), match=name):
            Emitter(URL, **option)


@pytest.mark.parametrize("redis", [None, 5, b"redis://127.0.0.1"], ids=str)
def test_what_is_no_redis(redis: Any) -> None:
    for make in (RedisStreamsManager, Emitter):
        with pytest.raises(TypeError, match="URL"):
            make(redis)


def test_servers_that_do_not_fit(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(TypeError, match="AsyncServer"):
        socketio.Server(client_manager=RedisStreamsManager(URL))
    with pytest.raises(TypeError, match="identity"):
        AsyncServer(client_manager=RedisStreamsManager(URL, recovery_secret=SECRET), identity="x")  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        AsyncServer(client_manager=RedisStreamsManager(URL, recovery_secret=SECRET), async_mode="asgi")
        assert not caplog.messages
        socketio.AsyncServer(client_manager=RedisStreamsManager(URL, recovery_secret=SECRET))
    assert ["no effect" in message for message in caplog.messages] == [True]


# -- the emitter ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("redis://nobody:a-secret-word@127.0.0.1:{port}", "WRONGPASS"),
        ("redis://127.0.0.1:{port}/99", "DB index"),
        ("redis://somebody:a-secret-word@127.0.0.1:{other}", "Connect"),
    ],
)
async def test_why_an_emitter_is_not_connected(valkey: Valkey, url: str, cause: str) -> None:
    with pytest.raises(Exception, match=f"(?i)redis://127.0.0.1.*{cause}") as raised:
        await Emitter(url.format(port=valkey.port, other=free_port())).start(1.0)
    assert type(raised.value).__name__ == "BackplaneUnavailable"
    assert "secret" not in str(raised.value)
    assert "body" not in str(raised.value)


async def test_a_closed_emitter_sends_nothing(valkey: Valkey) -> None:
    emitter = Emitter(valkey.url)  # never entered: connects by itself
    await asyncio.gather(emitter.emit("a"), emitter.to("r").emit("b"))
    assert valkey.client.xlen("socket.io") == 2
    await emitter.stop()
    for send in (
        emitter.emit("x"),
        emitter.to("r").emit("x"),
        emitter.disconnect_sockets(),
        emitter.server_side_emit("x"),
        emitter.start(),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            await send
    async with emitter_of_a_backplane() as other:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        await other.emit("x")
    assert valkey.client.xlen("socket.io") == 2


def emitter_of_a_backplane() -> Emitter:
    """Whose connection is not its own."""
    return Emitter(Node(URL).backplane)
