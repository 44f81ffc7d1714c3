"""A server in this process and raw clients for it. Every wait has a bound."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import socketio
import uvicorn
import websockets

from moorage.cluster.local import LocalManager
from moorage.settings import Settings
from moorage.sockets.server import SocketServer

WAIT_S = 10.0
"""[s] Longest wait for something that must happen."""


class Running:
    """A :class:`SocketServer` under uvicorn on a free port."""

    def __init__(self, sio: SocketServer, port: int) -> None:
        self.sio = sio
        self.port = port
        self.manager: LocalManager = sio.manager
        self.url = f"http://127.0.0.1:{port}"
        self.errors: list[dict[str, Any]] = []
        self.closed: list[tuple[str, str]] = []
        self.heard: list[str] = []
        sio.on_closed.append(lambda sid, reason: self.closed.append((sid, reason)))
        sio.on_heard.append(self.heard.append)

    def raw_url(self, query: str = "EIO=4&transport=websocket") -> str:
        """Address of the Engine.IO endpoint for a raw WebSocket."""
        return f"ws://127.0.0.1:{self.port}/v1/updates/?{query}"

    @contextlib.asynccontextmanager
    async def client(self, *transports: str, **options: Any) -> AsyncIterator[socketio.AsyncClient]:
        """A connected python-socketio client."""
        client = socketio.AsyncClient(reconnection=False)
        await client.connect(
            self.url,
            socketio_path="/v1/updates",
            transports=list(transports or ("websocket",)),
            wait_timeout=WAIT_S,
            **options,
        )
        try:
            yield client
        finally:
            await asyncio.wait_for(client.shutdown(), WAIT_S)

    @contextlib.asynccontextmanager
    async def raw(self, *, join: bool = True) -> AsyncIterator[websockets.ClientConnection]:
        """A raw WebSocket that has read its handshake and, with ``join``, is in the default namespace."""
        async with websockets.connect(self.raw_url(), ping_interval=None, max_size=None) as ws:
            assert (await receive(ws)).startswith("0{")
            if join:
                await ws.send("40")
                assert (await receive(ws)).startswith("40{")
            yield ws

    def nothing_left(self) -> bool:
        """No trace of any client."""
        sio = self.sio
        return not (
            sio.eio.sockets
            or sio.eio.ended
            or sio.environ
            or sio._tasks
            or self.manager.callbacks
            or self.manager.get_namespaces()
        )


@contextlib.asynccontextmanager
async def running(other: Any = None, **settings: Any) -> AsyncIterator[Running]:
    """Run a server; at the end nothing of any client may be left and no exception may have reached the loop."""
    sio = SocketServer(Settings(secret_key="k" * 32, **settings), LocalManager())

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})
        await send({"type": "http.response.body", "body": b"other"})

    config = uvicorn.Config(
        sio.asgi(other or nothing), port=0, http=sio.http_protocol, log_level="warning", lifespan="off"
    )
    server = uvicorn.Server(config)
    # As Server.serve does, without its signal handlers and its ticking main loop.
    config.load()
    server.lifespan = config.lifespan_class(config)
    await server.startup()
    found = Running(sio, server.servers[0].sockets[0].getsockname()[1])
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.errors.append(context))
    try:
        yield found
        assert found.errors == []
    finally:
        await asyncio.wait_for(server.shutdown(), WAIT_S)
    await until(found.nothing_left)


async def until(true: Callable[[], Any]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(WAIT_S):
        while not true():
            await asyncio.sleep(0.005)


async def receive(ws: websockets.ClientConnection) -> Any:
    """Next message of a raw client; answers no pings."""
    async with asyncio.timeout(WAIT_S):
        return await ws.recv()


async def receive_event(ws: websockets.ClientConnection) -> Any:
    """Next Socket.IO event of a raw client, decoded; everything else on the way is skipped."""
    while not (message := await receive(ws)).startswith("42"):
        pass
    return json.loads(message[2:])


async def send_all(ws: websockets.ClientConnection, messages: Sequence[Any]) -> Any:
    """Send messages (a list is sent in fragments), then receive one."""
    for message in messages:
        await ws.send(message)
    return await receive(ws)
