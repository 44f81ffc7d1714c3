"""`moorage serve` as a process: ports, signals, exit codes, probes before Redis is there."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import socketio

from moorage.accounts.tokens import Tokens
from moorage.settings import load

from ..processes import listening, spawned
from ..valkey import free_port

KEY = "a key of the tests, long enough to sign"


class Process:
    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.url = f"http://127.0.0.1:{port}"

    async def get(self, path: str) -> httpx.Response:
        """Once it listens."""
        async with httpx.AsyncClient() as http:
            return await listening(self.process, http, self.url + path)

    async def end(self) -> tuple[int | None, str]:
        """Its exit code, and all it printed."""
        out, _ = await asyncio.wait_for(self.process.communicate(), 20)
        return self.process.returncode, out.decode()


@asynccontextmanager
async def process(**env: str) -> AsyncIterator[Process]:
    port = free_port()
    ours = {
        "PORT": str(port), "METRICS_ENABLED": "false", "SECRET_KEY": KEY,
        "MOORAGE_HOST": "127.0.0.1", "MOORAGE_DRAIN_MS": "300",
    }  # fmt: skip
    async with spawned("serve", ours | env) as started:
        yield Process(started, port)


async def test_a_port_that_is_taken_is_named_and_the_exit_code_is_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        async with process(METRICS_ENABLED="true", METRICS_PORT=port) as one, process(PORT=port) as two:
            for replica, name in ((one, "METRICS_PORT"), (two, "PORT")):
                code, text = await replica.end()
                assert code == 1
                assert f" {name}={port}: cannot listen on 127.0.0.1" in text
                assert "Traceback" not in text


async def test_without_redis_it_lives_is_not_ready_and_a_signal_ends_it_at_once() -> None:
    async with process(REDIS_URL=f"redis://127.0.0.1:{free_port()}") as replica:
        assert (await replica.get("/health")).status_code == 200
        assert (await replica.get("/ready")).status_code == 503
        replica.process.send_signal(signal.SIGTERM)
        code, text = await replica.end()
        assert code == 0, text


async def test_the_connect_line_appears_at_any_level_and_a_second_signal_changes_nothing() -> None:
    # The window is long: the client ends the drain, not a moment that may be over before the second signal.
    async with process(MOORAGE_LOG_LEVEL="error", MOORAGE_DRAIN_MS="40000") as replica:
        assert (await replica.get("/ready")).status_code == 200
        client = socketio.AsyncClient(reconnection=False)
        token = Tokens(load(secret_key=KEY)).issue("acc")
        await client.connect(
            replica.url, socketio_path="/v1/updates", transports=["websocket"], auth={"token": token}
        )
        sid = client.get_sid()
        draining = asyncio.Event()
        client.on("server-draining", lambda payload: draining.set())
        replica.process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(draining.wait(), 10)
        replica.process.send_signal(signal.SIGTERM)
        assert (await replica.get("/ready")).status_code == 503
        assert client.connected
        await client.shutdown()
        code, text = await replica.end()
        assert code == 0, text
        line = f"socket connected account=acc scope=user-scoped socket.id={sid}"
        assert [text.count(line), text.count(token)] == [1, 0]
        assert text.strip().count("\n") == 0
