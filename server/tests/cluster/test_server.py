"""Recovery in plain python-socketio applications under uvicorn, two servers on one Redis."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
import socketio
import uvicorn

from moorage.cluster import AsyncServer, RedisStreamsManager

from ..app.raw import Raw
from ..valkey import Valkey
from .nodes import Node

Until = Callable[..., Awaitable[None]]
SECRET = "a key of the tests, long enough to sign"


class Site:
    """A server with one room for all and one that is joined later."""

    def __init__(self, url: str) -> None:
        self.manager = RedisStreamsManager(url, recovery_secret=SECRET)
        self.sio = AsyncServer(
            client_manager=self.manager,
            async_mode="asgi",
            identity=lambda environ, auth: (auth or {}).get("user"),
        )
        self.recovered: list[bool] = []

        @self.sio.event
        async def connect(sid: str, environ: Any, auth: Any) -> None:
            if (auth or {}).get("user") == "nobody":
                raise socketio.exceptions.ConnectionRefusedError("no")
            self.recovered.append(self.sio.is_recovered(sid))
            await self.sio.enter_room(sid, "all")

        @self.sio.event
        async def join(sid: str, room: str) -> None:
            await self.sio.enter_room(sid, room)

    async def listen(self) -> None:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(
            socketio.ASGIApp(self.sio), lifespan="off", log_config=None, ws="websockets-sansio"
        )
        self.server = uvicorn.Server(config)
        assert await self.manager.start()
        self.serving = asyncio.create_task(self.server.serve(sockets=[listener]))
        while not self.server.started:
            await asyncio.sleep(0.005)

    async def close(self) -> None:
        self.server.should_exit = True
        await self.sio.shutdown()
        await asyncio.wait_for(self.serving, 10)
        await self.manager.stop()


@pytest_asyncio.fixture
async def sites(valkey: Valkey) -> AsyncIterator[list[Site]]:
    sites = [Site(valkey.url), Site(valkey.url)]
    for site in sites:
        await site.listen()
    yield sites
    for site in sites:
        await site.close()


def client(at: Site, user: str = "u") -> Raw:
    return Raw(at.url, path="/socket.io/", user=user)


async def test_recovered_with_its_rooms_and_what_it_missed(sites: list[Site], until: Until) -> None:
    here, there = sites
    async with client(here) as raw:
        sid = raw.sid
        await raw.send("join", "later")
        await until(lambda: "later" in here.manager.rooms_of(sid))
        await here.sio.emit("one", {"n": 1}, room="all")
        await until(lambda: len(raw.events) == 1)
        for turn, at in enumerate((there, there, here)):
            await raw.cut()
            await here.sio.emit("missed", {"n": turn}, room="later")
            await raw.connect(at.url)
            assert raw.recovered
            assert raw.sid == sid
            assert at.recovered[-1]
            await there.sio.emit("live", "a text", room="later")
            await until(lambda turn=turn: len(raw.events) == 3 + 2 * turn)
        assert [event[0] for event in raw.events] == ["one", *["missed", "live"] * 3]
        assert raw.events[2] == ["live", "a text"]


async def test_only_the_same_one_who_did_not_leave(sites: list[Site], until: Until) -> None:
    here, there = sites
    async with client(here) as raw:
        await raw.cut()
        await raw.connect(there.url, user="another")
        assert not raw.recovered
        await raw.cut()
        await raw.connect(here.url, user="nobody")
        assert raw.refusal == "no"
    async with client(here) as raw:
        await here.sio.disconnect(raw.sid)
        await raw.cut()
        await raw.connect(there.url)
        assert not raw.recovered
        await raw.ws.send_str("41")
        await until(lambda: not there.manager.is_connected(raw.sid, "/"))
        await raw.cut()
        await raw.connect(here.url)
        assert not raw.recovered


async def test_python_clients_see_no_difference(sites: list[Site], until: Until) -> None:
    got: list[tuple[Any, ...]] = []
    client = socketio.AsyncClient(reconnection=False)
    client.on("e", lambda *args: got.append(args))
    await client.connect(sites[0].url, auth={"user": "u"}, transports=["websocket"])
    await sites[1].sio.emit("e", "text", room="all")
    await until(lambda: got == [("text",)])
    await client.disconnect()
    await client.eio.disconnect()


def test_without_a_secret_it_says_so() -> None:
    with pytest.raises(ValueError, match="recovery_secret"):
        AsyncServer(client_manager=RedisStreamsManager("redis://127.0.0.1"), async_mode="asgi")


async def test_a_server_that_takes_no_part_sends_no_offsets(valkey: Valkey, until: Until) -> None:
    node = Node(valkey.url, recovery_secret=SECRET)
    await node.start()
    try:
        plain = await node.client("s", "all")
        await node.server.emit("e", {"n": 1}, room="all")
        await until(lambda: plain.got == [["e", {"n": 1}]])
    finally:
        await node.stop()
