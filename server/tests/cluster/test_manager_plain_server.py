"""The manager in plain python-socketio servers, with python-socketio's own clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
import socketio
from aiohttp import web

from moorage.cluster import RedisStreamsManager

from ..valkey import Valkey

Until = Callable[..., Awaitable[None]]


class Site:
    """A server, started by its first client, and clients."""

    def __init__(self, url: str) -> None:
        self.manager = RedisStreamsManager(url)
        self.server = socketio.AsyncServer(
            client_manager=self.manager, async_mode="aiohttp", ping_interval=1, ping_timeout=1
        )
        self.clients: list[socketio.AsyncClient] = []
        self.sids: list[str] = []

        @self.server.event
        async def connect(sid: str, environ: Any) -> None:
            self.sids.append(sid)
            await self.server.enter_room(sid, "all")

    async def listen(self) -> None:
        app = web.Application()
        self.server.attach(app)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.port = self.runner.addresses[0][1]

    async def client(self, transport: str) -> list[Any]:
        got: list[Any] = []
        client = socketio.AsyncClient(reconnection=False)

        @client.on("*")
        def everything(event: str, *args: Any) -> Any:
            got.append([event, *args])
            return {"ack": transport}

        await client.connect(f"http://127.0.0.1:{self.port}", transports=[transport])
        self.clients.append(client)
        return got

    async def close(self) -> None:
        for client in self.clients:
            await client.disconnect()
            await client.eio.disconnect()
        await self.server.shutdown()
        await self.runner.cleanup()
        await self.manager.stop()


@pytest_asyncio.fixture
async def sites(valkey: Valkey) -> AsyncIterator[list[Site]]:
    sites = [Site(valkey.url), Site(valkey.url)]
    for site in sites:
        await site.listen()
    yield sites
    for site in sites:
        await site.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_two_servers(sites: list[Site], valkey: Valkey, until: Until) -> None:
    here, there = sites
    web_here, poll_here = await here.client("websocket"), await here.client("polling")
    web_there, poll_there = await there.client("websocket"), await there.client("polling")
    everybody = [web_here, poll_here, web_there, poll_there]
    await until(lambda: valkey.client.pubsub_numsub("socket.io#/#")[0][1] == 2)
    await until(lambda: here.manager.reader.placed.is_set() and there.manager.reader.placed.is_set())

    await here.server.emit("binary", {"x": b"\x00\xff"}, to="all")
    await until(lambda: all(everybody))
    assert everybody == [[["binary", {"x": b"\x00\xff"}]]] * 4

    assert await here.server.call("ask", 1, to=there.sids[0], timeout=5) == {"ack": "websocket"}
    assert await here.server.call("ask", 1, to=there.sids[1], timeout=5) == {"ack": "polling"}
    assert await here.server.call("ask", 1, to=here.sids[1], timeout=5) == {"ack": "polling"}

    await here.server.disconnect(there.sids[1])
    await until(lambda: not there.clients[1].connected)
    acks, complete = await here.manager.requests.emit_with_ack("all", "ask", [2], 5000)
    assert complete
    assert sorted(ack["ack"] for ack in acks) == ["polling", "websocket", "websocket"]
    await asyncio.sleep(0)
