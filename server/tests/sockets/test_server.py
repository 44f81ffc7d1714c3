"""The socket engine with real clients."""

from __future__ import annotations

import asyncio

import pytest

from .running import running, until


@pytest.mark.parametrize("transports", [("websocket",), ("polling",), ("polling", "websocket")])
async def test_event_ack_and_broadcast(transports: tuple[str, ...]) -> None:
    async with running() as server:
        server.sio.direct["echo"] = lambda sid, args, reply: reply(*args) if reply else None
        async with server.client(*transports) as client:
            got = asyncio.Queue()
            client.on("news", got.put_nowait)
            assert await client.call("echo", {"a": [1, "ü"]}, timeout=5) == {"a": [1, "ü"]}
            await client.emit("echo", 1)
            assert server.manager.emit_local("news", ["x"], []) == 1
            assert await asyncio.wait_for(got.get(), 5) == "x"
            await until(lambda: client.transport() == transports[-1])
            server.manager.emit_local("news", ["y"], [])
            assert await asyncio.wait_for(got.get(), 5) == "y"
