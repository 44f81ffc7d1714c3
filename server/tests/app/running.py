"""Whole replicas in this process, composed as by ``moorage serve``, on real ports, over a real Redis."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import socketio
import uvicorn

from moorage.app import Replica
from moorage.serve import Server
from moorage.settings import load

KEY = "a key of the tests, long enough to sign"

PATIENT = {"redis_stall_ms": 5000, "redis_timeout_ms": 8000}
"""A Redis that stands still for a moment, because the machine does, is no outage where none is meant."""


class Running:
    """A serving replica."""

    def __init__(self, replica: Replica, port: int, server: Server) -> None:
        self.replica = replica
        self.server = server
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    def token(self, account: str = "acc") -> str:
        return self.replica.tokens.issue(account)


@asynccontextmanager
async def running(url: str | None, name: str = "r", **settings: Any) -> AsyncIterator[Running]:
    """Start a replica, and stop it without a drain."""
    loaded = load(redis_url=url, secret_key=KEY, replica_id=name, host="127.0.0.1", **{**PATIENT, **settings})
    replica = Replica(loaded)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(
        replica.asgi,
        http=replica.server.http_protocol,  # type: ignore[arg-type]
        ws="websockets-sansio",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = Server(config)
    await replica.start()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    async with asyncio.timeout(10):
        while not server.started:
            await asyncio.sleep(0.005)
    try:
        yield Running(replica, listener.getsockname()[1], server)
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, 10)
        await replica.background.close(0.5)
        await replica.stop()


class Client:
    """An unmodified python-socketio client that remembers what it got."""

    def __init__(self, at: Running, account: str = "acc", **auth: Any) -> None:
        self.at = at
        self.auth = {"token": at.token(account), **auth}
        self.sio = socketio.AsyncClient(reconnection=False)
        self.got: list[tuple[str, Any]] = []
        self.hangs = False
        self.sio.on("*", self._any)

    async def _any(self, event: str, *args: Any) -> Any:
        self.got.append((event, args[0] if args else None))
        if event == "rpc-request" and not self.hangs:
            return {"echo": args[0]["params"], "by": self.sid}
        if event == "rpc-request":
            await asyncio.sleep(60)
        return None

    @property
    def sid(self) -> str:
        return str(self.sio.get_sid())

    def of(self, event: str) -> list[Any]:
        return [payload for name, payload in self.got if name == event]

    async def __aenter__(self) -> Client:
        await self.sio.connect(
            self.at.url, socketio_path="/v1/updates", transports=["websocket"], auth=self.auth, wait_timeout=5
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.sio.shutdown()

    async def ack(self, event: str, payload: Any = None) -> Any:
        return await self.sio.call(event, payload, timeout=20)

    async def register(self, method: str, **extra: Any) -> Any:
        before = len(self.of("rpc-registered"))
        await self.sio.emit("rpc-register", {"method": method, **extra})
        await until(lambda: len(self.of("rpc-registered")) > before)
        return self.of("rpc-registered")[-1]


async def until(condition: Any, bound_s: float = 10.0) -> None:
    async with asyncio.timeout(bound_s):
        while not condition():
            await asyncio.sleep(0.005)
