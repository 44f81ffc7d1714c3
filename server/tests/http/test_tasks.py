"""Routes of tasks: what is started, what is refused, and whose it is. What a task does is tests/tasks'."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from moorage.errors import BackplaneUnavailable, BackplaneUnknown
from moorage.storage.tasks_memory import MemoryTasks
from moorage.tasks.context import Task
from moorage.tasks.runner import Runner

from ..conftest import WAIT_S
from .conftest import World, make_world


@pytest.fixture
def world() -> World:
    """With small limits."""
    return make_world(event_max_bytes=2048)


@pytest.fixture
async def session(client: httpx.AsyncClient) -> str:
    made = await client.post("/v1/sessions", json={"tag": "t"})
    return str(made.json()["session"]["id"])


async def work(task: Task, input: Any) -> Any:
    await task.report("step", input)
    return {"answer": await task.ask("sure?")}


@pytest.fixture
async def worker(world: World) -> AsyncIterator[Runner]:
    runner = Runner(world.settings, world.tasks, world.events, {"demo": work}, together=True)
    runner.start()
    yield runner
    await runner.stop(0)


async def asked(client: httpx.AsyncClient, session: str) -> dict[str, Any]:
    """The turn once it has an open question that was told."""
    async with asyncio.timeout(WAIT_S):
        while True:
            turn = (await client.get(f"/v1/sessions/{session}/turn")).json()
            if turn["events"] and turn["events"][-1]["event"]["type"] == "question":
                return dict(turn)
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("worker")
async def test_a_turn(client: httpx.AsyncClient, session: str) -> None:
    missing = await client.get(f"/v1/sessions/{session}/turn")
    assert (missing.status_code, missing.json()["error"]) == (404, "Turn not found")
    started = await client.post(f"/v1/sessions/{session}/tasks", json={"input": {"x": 1}})
    assert started.status_code == 202
    task_id = started.json()["taskId"]
    turn = await asked(client, session)
    assert (turn["taskId"], turn["status"], turn["input"]) == (task_id, "running", {"x": 1})
    kinds = [frame["event"]["type"] for frame in turn["events"]]
    assert kinds == ["session_created", "step", "question"]
    assert turn["lastEventId"] == turn["events"][-1]["id"]
    question_id = turn["question"]["questionId"]
    reply = {"questionId": question_id, "answer": ["yes"]}
    assert (await client.post(f"/v1/sessions/{session}/replies", json=reply)).status_code == 202
    again = await client.post(f"/v1/sessions/{session}/replies", json=reply)
    assert (again.status_code, again.json()["error"]) == (404, "Question not found")
    async with asyncio.timeout(WAIT_S):
        while (status := (await client.get(f"/v1/tasks/{task_id}")).json())["status"] != "done":
            await asyncio.sleep(0.01)
    assert status == {"status": "done", "attempts": 1, "result": {"answer": ["yes"]}}


@pytest.mark.usefixtures("worker")
async def test_others_see_nothing(client: httpx.AsyncClient, session: str, world: World) -> None:
    started = await client.post(f"/v1/sessions/{session}/tasks", json={"input": None})
    turn = await asked(client, session)
    reply = {"questionId": turn["question"]["questionId"], "answer": 1}
    async with world.client("other") as other:
        for method, path, body in (
            ("POST", "tasks", {"input": 1}),
            ("GET", "turn", None),
            ("POST", "replies", reply),
        ):
            said = await other.request(method, f"/v1/sessions/{session}/{path}", json=body)
            assert (said.status_code, said.json()["error"]) == (404, "Session not found")
        own = (await other.post("/v1/sessions", json={"tag": "t"})).json()["session"]["id"]
        said = await other.post(f"/v1/sessions/{own}/replies", json=reply)
        assert (said.status_code, said.json()["error"]) == (404, "Question not found")
        said = await other.get(f"/v1/tasks/{started.json()['taskId']}")
        assert (said.status_code, said.json()["error"]) == (404, "Task not found")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"handler": "demo"}, 422),
        ({"input": 1, "handler": ""}, 422),
        ({"input": 1, "handler": 5}, 422),
        ({"input": 1, "handler": "no such"}, 422),
        ({"input": "x" * 2048}, 413),
    ],
)
async def test_bad_input_is_refused_and_nothing_is_queued(
    client: httpx.AsyncClient, session: str, body: dict[str, Any], status: int
) -> None:
    said = await client.post(f"/v1/sessions/{session}/tasks", json=body)
    assert said.status_code == status
    assert said.json()["statusCode"] == status
    assert (await client.get(f"/v1/sessions/{session}/turn")).status_code == 404


async def test_a_handler_that_no_worker_has(client: httpx.AsyncClient, session: str, world: World) -> None:
    await world.tasks.beat("w", ["demo"], [])
    said = await client.post(f"/v1/sessions/{session}/tasks", json={"input": 1, "handler": "misspelt"})
    assert (said.status_code, said.json()["error"]) == (422, "Unknown handler")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "tasks", {"input": 1}),
        ("GET", "turn", None),
        ("POST", "replies", {"questionId": f"{'0' * 32}.{'0' * 12}.1", "answer": 1}),
    ],
)
async def test_while_the_state_is_away(
    client: httpx.AsyncClient,
    session: str,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    path: str,
    body: Any,
) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        raise BackplaneUnavailable

    for name in ("add", "latest", "answer"):
        monkeypatch.setattr(MemoryTasks, name, away)
    said = await client.request(method, f"/v1/sessions/{session}/{path}", json=body)
    assert (said.status_code, said.json()["error"]) == (503, "Backplane unavailable")
    assert int(said.headers["Retry-After"]) >= 1


async def test_what_only_reads_leaves_nothing_unknown(
    client: httpx.AsyncClient, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: Any, **__: Any) -> Any:
        raise BackplaneUnknown

    for name in ("get", "latest", "answer"):
        monkeypatch.setattr(MemoryTasks, name, lost)
    for path in (f"/v1/tasks/{'0' * 32}", f"/v1/sessions/{session}/turn"):
        said = (await client.get(path)).json()
        assert (said["statusCode"], said["message"]) == (503, "Redis is out of reach: it could not be read")
    body = {"questionId": f"{'0' * 32}.{'0' * 12}.1", "answer": 1}
    said = (await client.post(f"/v1/sessions/{session}/replies", json=body)).json()
    assert (said["statusCode"], said["message"]) == (503, "Whether it was done is not known")


async def test_a_reply_that_is_too_large(client: httpx.AsyncClient, session: str) -> None:
    said = await client.post(
        f"/v1/sessions/{session}/replies", json={"questionId": "q", "answer": "x" * 2048}
    )
    assert said.status_code == 413


async def test_without_a_token(nobody: httpx.AsyncClient) -> None:
    for method, path in (("POST", "s/tasks"), ("GET", "s/turn"), ("POST", "s/replies")):
        assert (await nobody.request(method, f"/v1/sessions/{path}", json={})).status_code == 401
    assert (await nobody.get("/v1/tasks/t")).status_code == 401


async def test_a_deleted_sessions_tasks_go_with_it(client: httpx.AsyncClient, session: str) -> None:
    started = await client.post(f"/v1/sessions/{session}/tasks", json={"input": 1})
    assert (await client.delete(f"/v1/sessions/{session}")).status_code == 200
    assert (await client.get(f"/v1/tasks/{started.json()['taskId']}")).status_code == 404


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("depth", [252, 253, 254, 260])
async def test_the_deepest_input_comes_back_or_is_refused(
    client: httpx.AsyncClient, session: str, depth: int
) -> None:
    said = await client.post(f"/v1/sessions/{session}/tasks", json={"input": nested(depth)})
    turn = await client.get(f"/v1/sessions/{session}/turn")
    if said.status_code == 422:
        assert (depth > 253, turn.status_code) == (True, 404)
    else:
        assert (depth <= 253, turn.json()["input"]) == (True, nested(depth))
