from __future__ import annotations

from typing import Any

import httpx
import pytest

from moorage.errors import BackplaneUnavailable, BackplaneUnknown, PresenceUnknown

from .conftest import World

FILTERS = [
    ({"type": "all-user-authenticated-connections"}, {"user:acc"}),
    ({"type": "user-scoped-only"}, {"user:acc:user-scoped"}),
    ({"type": "all-interested-in-session", "sessionId": "s"}, {"user:acc:session:s", "user:acc:user-scoped"}),
    ({"type": "machine-scoped-only", "machineId": "m"}, {"user:acc:machine:m", "user:acc:user-scoped"}),
]


@pytest.mark.parametrize(("filter_", "rooms"), FILTERS)
@pytest.mark.parametrize("skip", [None, "sid-1"])
async def test_every_filter(
    world: World, client: httpx.AsyncClient, filter_: Any, rooms: Any, skip: Any
) -> None:
    request = {"filter": filter_, "body": {"t": "x", "n": 1}, **({"skipSocketId": skip} if skip else {})}
    update = await client.post("/v1/emit", json={"event": "update", **request})
    ephemeral = await client.post("/v1/emit", json={"event": "ephemeral", **request})
    assert (update.status_code, ephemeral.status_code, ephemeral.json()) == (202, 202, {})
    numbered, fleeting = world.recorder.emitted
    assert update.json() == {"id": numbered.payload["id"], "seq": 1}
    assert numbered.event == "update"
    assert numbered.payload["body"] == {"t": "x", "n": 1}
    assert (fleeting.event, fleeting.payload) == ("ephemeral", {"t": "x", "n": 1})
    for sent in world.recorder.emitted:
        assert set(sent.rooms) == rooms
        assert sent.skipped == ((skip,) if skip else ())


async def test_numbers_are_dense_per_account(world: World, client: httpx.AsyncClient) -> None:
    request = {"event": "update", "filter": {"type": "user-scoped-only"}, "body": {"t": "x"}}
    async with world.client("other") as other:
        answers = [
            (await each.post("/v1/emit", json=request)).json() for each in (client, other, client, other)
        ]
    assert [answer["seq"] for answer in answers] == [1, 1, 2, 2]
    assert len({answer["id"] for answer in answers}) == 4


GOOD = {"event": "update", "filter": {"type": "user-scoped-only"}, "body": {"t": "x"}}


@pytest.mark.parametrize(
    "change",
    [
        {"event": "other"}, {"event": None}, {"filter": None}, {"filter": {}}, {"filter": {"type": "nobody"}},
        {"filter": {"type": "all-interested-in-session"}}, {"filter": {"type": "machine-scoped-only"}},
        {"filter": {"type": "machine-scoped-only", "machineId": ""}}, {"filter": []}, {"body": "text"}, {"body": []},
        {"body": None}, {"body": {"n": 2**80}}, {"skipSocketId": 5}, {"skipSocketId": ""}, {"skipSocketId": "x" * 257},
    ],
)  # fmt: skip
async def test_what_is_refused(world: World, client: httpx.AsyncClient, change: dict[str, Any]) -> None:
    answer = await client.post("/v1/emit", json=GOOD | change)
    assert answer.status_code == 422
    assert answer.json()["error"] == "Invalid request"
    assert world.recorder.emitted == []


async def test_without_redis_an_update_is_refused_and_an_ephemeral_is_not(
    world: World, client: httpx.AsyncClient
) -> None:
    world.recorder.fails = BackplaneUnavailable()
    answer = await client.post("/v1/emit", json=GOOD)
    assert (answer.status_code, answer.json()) == (503, {"error": "Backplane unavailable", "statusCode": 503})
    assert answer.headers["Retry-After"] == "1"
    world.recorder.fails = BackplaneUnknown()
    answer = await client.post("/v1/emit", json=GOOD)
    assert (answer.status_code, answer.json()["error"]) == (503, "Backplane unavailable")
    assert "not known" in answer.json()["message"]
    assert (await client.post("/v1/emit", json=GOOD | {"event": "ephemeral"})).status_code == 202


@pytest.mark.parametrize(("active", "said"), [(True, True), (False, False), (PresenceUnknown(), None)])
async def test_presence(world: World, client: httpx.AsyncClient, active: Any, said: Any) -> None:
    world.active = active
    answer = await client.get("/v1/presence")
    assert (answer.status_code, answer.json()) == (200, {"active": said})
