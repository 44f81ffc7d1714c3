from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from moorage.errors import BackplaneUnavailable, BackplaneUnknown

from .conftest import World


async def test_create_then_get_the_same(world: World, client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/sessions", json={"tag": "t", "metadata": {"a": [1]}})
    session = answer.json()["session"]
    assert answer.status_code == 200
    assert session.keys() == {"id", "tag", "seq", "metadata", "active", "createdAt", "updatedAt"}
    assert (session["tag"], session["seq"], session["metadata"]) == ("t", 1, {"a": [1]})
    again = await client.post("/v1/sessions", json={"tag": "t", "metadata": "other"})
    assert again.json()["session"] == session
    assert [e.payload["body"] for e in world.recorder.emitted] == [{"t": "new-session", **session}]
    told = world.recorder.emitted[0]
    assert (told.event, told.rooms, told.skipped) == ("update", ("user:acc:user-scoped",), ())
    assert told.payload.keys() == {"id", "seq", "body", "createdAt"}


async def test_a_race_of_creates_is_one_session_told_once(world: World, client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.post("/v1/sessions", json={"tag": "t"}) for _ in range(10)))
    assert len({answer.json()["session"]["id"] for answer in answers}) == 1
    assert len(world.recorder.emitted) == 1


async def test_the_list_is_newest_first_and_the_accounts_own(world: World, client: httpx.AsyncClient) -> None:
    for tag in "abc":
        await client.post("/v1/sessions", json={"tag": tag})
    listed = (await client.get("/v1/sessions")).json()["sessions"]
    assert [session["tag"] for session in listed] == ["c", "b", "a"]
    async with world.client("other") as other:
        assert (await other.get("/v1/sessions")).json() == {"sessions": []}


async def test_delete_tells_and_removes(world: World, client: httpx.AsyncClient) -> None:
    session = (await client.post("/v1/sessions", json={"tag": "t"})).json()["session"]
    assert (await client.delete(f"/v1/sessions/{session['id']}")).status_code == 200
    assert world.recorder.emitted[-1].payload["body"] == {"t": "delete-session", "sid": session["id"]}
    assert world.recorder.emitted[-1].payload["seq"] == 2
    for method, path in (("DELETE", ""), ("GET", "/messages")):
        answer = await client.request(method, f"/v1/sessions/{session['id']}{path}")
        assert (answer.status_code, answer.json()) == (404, {"error": "Session not found", "statusCode": 404})
    assert len(world.recorder.emitted) == 2


async def test_another_accounts_session_is_unknown(world: World, client: httpx.AsyncClient) -> None:
    session = (await client.post("/v1/sessions", json={"tag": "t"})).json()["session"]
    async with world.client("other") as other:
        for method, path in (("DELETE", ""), ("GET", "/messages")):
            foreign = await other.request(method, f"/v1/sessions/{session['id']}{path}")
            unknown = await other.request(method, f"/v1/sessions/never-was{path}")
            assert (foreign.status_code, foreign.json()) == (unknown.status_code, unknown.json())
            assert foreign.status_code == 404
    assert len((await client.get("/v1/sessions")).json()["sessions"]) == 1


async def test_messages_in_pages(world: World, client: httpx.AsyncClient) -> None:
    session = (await client.post("/v1/sessions", json={"tag": "t"})).json()["session"]
    for n in range(105):
        await world.state.add_message("acc", session["id"], {"t": "encrypted", "c": str(n)}, f"l{n}")
    path = f"/v1/sessions/{session['id']}/messages"
    first = (await client.get(path)).json()
    assert (len(first["messages"]), first["hasMore"]) == (100, True)
    assert first["messages"][0].keys() == {"id", "seq", "content", "localId", "createdAt"}
    rest = (await client.get(path, params={"after_seq": 100, "limit": 5})).json()
    assert [message["seq"] for message in rest["messages"]] == [101, 102, 103, 104, 105]
    assert rest["hasMore"] is False
    for bad in ({"limit": 0}, {"limit": 1001}, {"limit": "x"}, {"after_seq": -1}, {"after_seq": 2**60}):
        answer = await client.get(path, params=bad)
        assert (answer.status_code, answer.json()["statusCode"]) == (422, 422)


@pytest.mark.parametrize(
    "body",
    [
        {}, {"tag": ""}, {"tag": 5}, {"tag": None}, {"tag": "x" * 1025}, [], None, "x",
        {"tag": "t", "metadata": 2**70},
    ],
)  # fmt: skip
async def test_bad_bodies(client: httpx.AsyncClient, body: Any) -> None:
    answer = await client.post("/v1/sessions", json=body)
    assert answer.status_code == 422
    assert answer.json().keys() == {"error", "message", "statusCode"}


async def test_without_backplane_nothing_is_stored(world: World, client: httpx.AsyncClient) -> None:
    session = (await client.post("/v1/sessions", json={"tag": "a"})).json()["session"]
    world.recorder.up = False
    for answer in (
        await client.post("/v1/sessions", json={"tag": "b"}),
        await client.delete(f"/v1/sessions/{session['id']}"),
    ):
        assert (answer.status_code, answer.json()) == (
            503,
            {"error": "Backplane unavailable", "statusCode": 503},
        )
        assert answer.headers["Retry-After"] == "1"
    world.recorder.up = True
    assert [s["tag"] for s in (await client.get("/v1/sessions")).json()["sessions"]] == ["a"]


@pytest.mark.parametrize("error", [BackplaneUnavailable(), BackplaneUnknown()])
async def test_a_lost_announcement_does_not_undo_what_is_stored(
    world: World, client: httpx.AsyncClient, error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world.recorder.fails = error
    assert (await client.post("/v1/sessions", json={"tag": "a"})).status_code == 200
    assert "update new-session not sent" in caplog.text
