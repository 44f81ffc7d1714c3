"""The bench's reader of an event log, against a server that says what it is told to."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from moorage_chaos.bench.client import BenchError
from moorage_chaos.bench.log_clients import LogReader, follow

READY = {"type": "ws_ready", "sessionId": "s", "lastEventId": "0-0", "lastSeq": 0, "epoch": "e"}
Script = Callable[[ServerConnection], Awaitable[Any]]


@asynccontextmanager
async def says(script: Script, seen: list[str] | None = None) -> AsyncIterator[int]:
    async def handle(connection: ServerConnection) -> None:
        assert connection.request is not None
        if seen is not None:
            seen.append(connection.request.path)
            seen.append(connection.request.headers["Authorization"])
        await script(connection)

    async with serve(handle, "127.0.0.1", 0) as server:
        yield next(iter(server.sockets)).getsockname()[1]


def event(n: int, t: int = 0) -> str:
    inner = {"type": "item", "data": {"t": t}, "at": 1}
    return json.dumps({"type": "event", "id": f"{n}-0", "seq": n, "event": inner})


async def settled(reader: LogReader) -> bool:
    async with asyncio.timeout(5):
        return await reader.settled


async def test_it_counts_events_and_times_those_it_is_told_to() -> None:
    go = asyncio.Event()

    async def script(connection: ServerConnection) -> None:
        await connection.send(json.dumps(READY))
        await connection.send(event(1))
        await connection.send(json.dumps({"type": "ping"}))
        assert json.loads(await connection.recv()) == {"type": "pong"}
        await go.wait()
        await connection.send(event(2, time.monotonic_ns()))
        await connection.send(json.dumps({"type": "replay_done", "lastEventId": "2-0"}))
        await connection.wait_closed()

    seen: list[str] = []
    async with says(script, seen) as port:
        reader = await follow(port, "token", "s", "0-0")
        async with asyncio.timeout(5):
            while reader.events < 1:  # what comes after ws_ready may come later
                await asyncio.sleep(0.001)
        reader.measuring = True
        go.set()
        assert await settled(reader)
        assert (reader.events, len(reader.took)) == (2, 1)
        assert 0 <= reader.took[0] < 5e9
        reader.close()
    assert seen == ["/v1/sessions/s/stream?last_event_id=0-0", "Bearer token"]


async def test_a_gap_settles_it_too() -> None:
    async def script(connection: ServerConnection) -> None:
        await connection.send(json.dumps(READY))
        await connection.send(json.dumps({"type": "replay_gap", "reason": "expired", "oldest": None}))
        await connection.wait_closed()

    async with says(script) as port:
        reader = await follow(port, "token", "s")
        assert not await settled(reader)
        reader.close()


@pytest.mark.parametrize("after_ready", [False, True])
async def test_a_connection_that_is_closed_is_an_error(after_ready: bool) -> None:
    async def script(connection: ServerConnection) -> None:
        if after_ready:
            await connection.send(json.dumps(READY))

    async with says(script) as port:
        if not after_ready:
            with pytest.raises(BenchError, match="closed"):
                await follow(port, "token", "s")
            return
        reader = await follow(port, "token", "s")
        with pytest.raises(BenchError, match="closed"):
            await settled(reader)
        assert reader.lost
