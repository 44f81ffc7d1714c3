"""The examples of docs/cluster.md: the first one is served by uvicorn, twice, and used; the others run."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import socketio

from ..valkey import Valkey
from .nodes import Node

Until = Callable[..., Awaitable[None]]

PAGE = (Path(__file__).parents[3] / "docs" / "cluster.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
START_BOUND_S = 30.0


@contextmanager
def served(folder: Path, url: str) -> Iterator[int]:
    (folder / "example.py").write_text(BLOCKS[0].replace("redis://localhost:6379", url), encoding="utf-8")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "uvicorn", "example:app", "--fd", str(listener.fileno())]
        process = subprocess.Popen(
            [*command, "--log-level", "error"], cwd=folder, pass_fds=(listener.fileno(),)
        )
    try:
        yield port
    finally:
        process.kill()
        process.wait(10)


async def connect(port: int, got: list[Any]) -> socketio.AsyncClient:
    client = socketio.AsyncClient(reconnection=False)
    client.on("news", got.append)
    await client.connect(f"http://127.0.0.1:{port}", transports=["websocket"], wait_timeout=START_BOUND_S)
    return client


async def test_the_example_in_two_servers(valkey: Valkey, tmp_path: Path, until: Until) -> None:
    with served(tmp_path, valkey.url) as first, served(tmp_path, valkey.url) as second:
        here: list[Any] = []
        there: list[Any] = []
        clients = [await connect(first, here), await connect(second, there)]
        await until(lambda: valkey.client.pubsub_numsub("socket.io#/#")[0][1] == 2)
        while await clients[0].call("publish", "warm", timeout=10) != 2 or "warm" not in there:
            await asyncio.sleep(0.02)
        assert await clients[0].call("publish", "hello", timeout=10) == 2
        await until(lambda: here[-1:] == there[-1:] == ["hello"])
        for client in clients:
            await client.disconnect()
            await client.eio.disconnect()


@pytest.mark.parametrize("number", range(1, len(BLOCKS)))
async def test_the_other_examples_run(valkey: Valkey, start_node: Any, number: int) -> None:
    node: Node = await start_node()
    code = BLOCKS[number].replace("redis://localhost:6379", valkey.url)
    body = "".join(f"    {line}\n" if line else "\n" for line in code.splitlines())
    names = {"manager": node.manager, "sid": "some"}
    exec(f"async def run(manager, sid):\n{body}", names)
    async with asyncio.timeout(20):
        await names["run"](node.manager, "some")  # type: ignore[operator]
