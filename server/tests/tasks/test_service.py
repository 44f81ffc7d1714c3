"""A replica without Redis runs the tasks itself; one with Redis leaves them to workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from moorage.app import Replica
from moorage.settings import load

from ..conftest import WAIT_S
from ..valkey import Valkey
from .world import SECRET


@pytest.fixture
async def replica() -> AsyncIterator[Replica]:
    made = Replica(load(secret_key=SECRET, drain_ms=100))
    await made.start()
    yield made
    await made.drain()
    await made.stop()


async def test_alone_it_runs_the_demo(replica: Replica) -> None:
    headers = {"Authorization": f"Bearer {replica.tokens.issue('acc')}"}
    transport = httpx.ASGITransport(replica.api)
    async with httpx.AsyncClient(transport=transport, base_url="http://moorage", headers=headers) as client:
        session = (await client.post("/v1/sessions", json={"tag": "t"})).json()["session"]["id"]
        body = {"input": {"steps": 1, "pauseMs": 0}}
        task_id = (await client.post(f"/v1/sessions/{session}/tasks", json=body)).json()["taskId"]
        async with asyncio.timeout(WAIT_S):
            while True:
                turn = (await client.get(f"/v1/sessions/{session}/turn")).json()
                if turn["events"] and turn["events"][-1]["event"]["type"] == "task_result":
                    break
                await asyncio.sleep(0.01)
        assert (turn["taskId"], turn["status"], turn["result"]["steps"]) == (task_id, "done", 1)
        async with asyncio.timeout(WAIT_S):
            while b'tasks_ended_total{result="done"} 1.0' not in replica.metrics.render()[0]:
                await asyncio.sleep(0.01)
        body = {"input": {"steps": 1000, "pauseMs": 60_000}}
        assert (await client.post(f"/v1/sessions/{session}/tasks", json=body)).status_code == 202
        said = await client.post(f"/v1/sessions/{session}/tasks", json={"input": 1, "handler": "other"})
        assert (said.status_code, said.json()["message"]) == (422, "No worker has a handler named other")


async def test_with_redis_it_runs_none(valkey: Valkey) -> None:
    replica = Replica(load(secret_key=SECRET, redis_url=valkey.url))
    assert replica.tasks.runner is None
    await replica.begin()
    await replica.stop()
