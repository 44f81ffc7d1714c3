"""Processes end when they are told to, whatever handlers do: they ignore their cancellation, or sit in a thread."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from moorage.accounts.tokens import Tokens
from moorage.settings import load

from ..processes import STARTED_S, listening, spawned
from ..valkey import Valkey, free_port
from .processes import process
from .world import ACCOUNT, SECRET, SESSION, World, events

HANDLERS = """
import asyncio
import time

import moorage


@moorage.task("swallow")
async def swallow(task, input):
    await task.report("begun", None)
    while True:
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            pass


@moorage.task("thread")
async def thread(task, input):
    await task.report("begun", None)
    await asyncio.to_thread(time.sleep, 45)


@moorage.task("long")
async def long(task, input):
    await task.report("begun", None)
    await asyncio.sleep(45)
"""

BOUND_S = 15.0
"""Window and bounds of the settings here are some three seconds together; what is looked for would take 45, or for
ever."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ends_tasks.py").write_text(HANDLERS)
    return tmp_path


@asynccontextmanager
async def alone(
    folder: Path, **env: str
) -> AsyncIterator[tuple[asyncio.subprocess.Process, httpx.AsyncClient]]:
    """`moorage serve` without Redis, and a client of it."""
    port = free_port()
    ours = {"PORT": str(port), "METRICS_ENABLED": "false", "SECRET_KEY": SECRET, "MOORAGE_HOST": "127.0.0.1"}
    ours |= {"MOORAGE_TASKS": "ends_tasks", "MOORAGE_DRAIN_MS": "300"}
    headers = {"Authorization": f"Bearer {Tokens(load(secret_key=SECRET)).issue(ACCOUNT)}"}
    async with (
        spawned("serve", ours | env, folder) as started,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as http,
    ):
        await listening(started, http, "/health")
        yield started, http


async def begin(http: httpx.AsyncClient, handler: str) -> str:
    """A task that runs; its id."""
    session = (await http.post("/v1/sessions", json={"tag": "t"})).json()["session"]["id"]
    task = await http.post(f"/v1/sessions/{session}/tasks", json={"input": None, "handler": handler})
    async with asyncio.timeout(STARTED_S):
        while len((await http.get(f"/v1/sessions/{session}/events")).json()["events"]) < 2:
            await asyncio.sleep(0.02)
    return str(task.json()["taskId"])


async def end(process: asyncio.subprocess.Process) -> str:
    out, _ = await asyncio.wait_for(process.communicate(), BOUND_S)
    return out.decode()


async def interrupt_twice(process: asyncio.subprocess.Process) -> str:
    """All it printed. The second signal comes when the first was heard: two that wait are one."""
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    said = b""
    async with asyncio.timeout(STARTED_S):
        while b"1 tasks have" not in said:
            line = await process.stdout.readline()
            assert line, said.decode()
            said += line
    process.send_signal(signal.SIGINT)
    return said.decode() + await end(process)


@pytest.mark.parametrize(("handler", "left"), [("swallow", "handler swallow"), ("thread", "thread ")])
async def test_a_worker_ends_although_a_handler_does_not(
    valkey: Valkey, folder: Path, handler: str, left: str
) -> None:
    world = World(valkey.url)
    try:
        queue, log = await world.queue(), await world.log()
        async with process(valkey.url, MOORAGE_TASKS="ends_tasks", PYTHONPATH=str(folder)) as worker:
            task_id = await queue.start_task(ACCOUNT, SESSION, None, handler)
            await events(log, "begun")
            worker.send_signal(signal.SIGTERM)
            out = await end(worker)
        assert worker.returncode == 0, out
        assert left in out
        assert "Traceback" not in out
        status = await queue.status(ACCOUNT, task_id)
        assert status is not None
        # What ignores its cancellation is not handed on at once, but taken over, and that is counted.
        assert status.status == ("running" if handler == "swallow" else "queued"), out
        assert (f"task {task_id}: its handler swallow does not end" in out) is (handler == "swallow")
    finally:
        await world.close()


@pytest.mark.parametrize("handler", ["swallow", "thread"])
async def test_so_does_a_server_that_runs_its_tasks_itself(folder: Path, handler: str) -> None:
    async with alone(folder) as (server, http):
        task_id = await begin(http, handler)
        server.send_signal(signal.SIGTERM)
        out = await end(server)
        assert "does not end" in out
        assert f"task {task_id}: lost" in out
        assert "taken over" not in out
        assert server.returncode == 0


async def test_another_interrupt_ends_the_drain(folder: Path) -> None:
    async with alone(folder, MOORAGE_DRAIN_MS="60000") as (server, http):
        task_id = await begin(http, "long")
        out = await interrupt_twice(server)
        assert server.returncode == 0, out
        assert f"task {task_id}: lost" in out
        assert "handed back" not in out
        assert "Traceback" not in out


async def test_a_worker_too(valkey: Valkey, folder: Path) -> None:
    world = World(valkey.url)
    env = {"MOORAGE_TASKS": "ends_tasks", "PYTHONPATH": str(folder), "MOORAGE_DRAIN_MS": "60000"}
    try:
        queue, log = await world.queue(), await world.log()
        async with process(valkey.url, **env) as worker:
            task_id = await queue.start_task(ACCOUNT, SESSION, None, "long")
            await events(log, "begun")
            out = await interrupt_twice(worker)
        assert worker.returncode == 0, out
        assert f"task {task_id}: handed back" in out
    finally:
        await world.close()
