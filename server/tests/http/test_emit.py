from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from moorage.errors import BackplaneUnavailable, BackplaneUnknown, PresenceUnknown
from moorage.http import emit
from moorage.sockets.updates import Updates

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


JSON = "application/json"
ROUTE = "application/json; charset=utf-8"
"""A type that only FastAPI's route looks at closely enough."""


@pytest.mark.parametrize("event", ["update", "ephemeral"])
async def test_the_shortcut_and_the_route_say_the_same(
    world: World, client: httpx.AsyncClient, event: str
) -> None:
    body = {"n": [1, 1.5, None, "\u00e9\u2028"], "deep": {"x": {}}}
    requests: list[Any] = [GOOD | {"event": event, "body": body}, GOOD | {"body": 5}, {}, [], "text"]
    for request in requests:
        world.recorder.fails = None
        answers = [
            await client.post("/v1/emit", content=json.dumps(request), headers={"content-type": kind})
            for kind in (JSON, ROUTE)
        ]
        assert answers[0].status_code == answers[1].status_code
        assert answers[0].headers == answers[1].headers
        if answers[0].status_code == 202 and event == "update":
            assert answers[0].json()["seq"] + 1 == answers[1].json()["seq"]
        else:
            assert answers[0].content == answers[1].content
    assert [sent.event for sent in world.recorder.emitted] == [event, event]
    first, second = (sent.payload for sent in world.recorder.emitted)
    if event == "update":
        first, second = first["body"], second["body"]
    assert first == second == body


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", {}, 400), (b"", {}, 422), (b"\xff", {}, 400), (b"[" * 10_000, {}, 400),
        (json.dumps(GOOD).encode("utf-16"), {}, 202), (json.dumps(GOOD | {"body": {"n": float("nan")}}), {}, 202),
        (json.dumps(GOOD), {"content-type": "text/plain"}, 422), (json.dumps(GOOD), {"authorization": "bearer x"}, 401),
        (json.dumps(GOOD), {"authorization": "Bearer \u00ff"}, 401), (json.dumps(GOOD), {"authorization": "No"}, 401),
        (json.dumps(GOOD | {"body": {"x": "y" * 2_000_000}}), {}, 413),
    ],
)  # fmt: skip
async def test_what_is_odd_goes_to_the_route(
    client: httpx.AsyncClient, content: Any, headers: dict[str, str], status: int
) -> None:
    encoded = [
        (name.encode(), value.encode("latin-1")) for name, value in ({"content-type": JSON} | headers).items()
    ]
    answer = await client.post("/v1/emit", content=content, headers=encoded)
    assert answer.status_code == status


async def test_a_body_in_pieces_of_unknown_length(world: World, client: httpx.AsyncClient) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for byte in json.dumps(GOOD).encode():
            yield bytes((byte,))

    answer = await client.post("/v1/emit", content=pieces(), headers={"content-type": JSON})
    assert (answer.status_code, answer.json()["seq"]) == (202, 1)


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS"])
async def test_other_methods_are_not_ours(client: httpx.AsyncClient, method: str) -> None:
    assert (await client.request(method, "/v1/emit")).status_code == 405


async def test_a_client_that_leaves_while_it_sends(world: World) -> None:
    told: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        told.append(message)

    headers = {
        "authorization": f"Bearer {world.tokens.issue('acc')}",
        "content-type": JSON,
        "content-length": "100",
    }
    scope = {
        "type": "http", "method": "POST", "path": "/v1/emit", "raw_path": b"/v1/emit", "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()], "http_version": "1.1",
        "root_path": "",
    }  # fmt: skip
    await world.app(scope, receive, send)
    assert (told, world.recorder.emitted) == ([], [])


def direct(world: World) -> tuple[emit.Direct, list[tuple[bytes, bytes]]]:
    headers = {
        "authorization": f"Bearer {world.tokens.issue('acc')}",
        "content-type": JSON,
        "content-length": "100",
    }
    made = emit.Direct(world.tokens, Updates(world.recorder), 1000)
    return made, [(name.encode(), value.encode()) for name, value in headers.items()]


async def test_an_ephemeral_is_answered_where_it_arrives(world: World) -> None:
    made, headers = direct(world)
    account = made.accept(headers)
    assert account == "acc"
    for number, (filter_, rooms) in enumerate(FILTERS):
        request = {"event": "ephemeral", "filter": filter_, "body": {"n": number}, "skipSocketId": "sid"}
        assert made.answer(account, json.dumps(request).encode()) == (202, b"{}")
        sent = world.recorder.emitted[-1]
        assert (sent.event, sent.payload, set(sent.rooms), sent.skipped) == (
            "ephemeral", {"n": number}, rooms, ("sid",),
        )  # fmt: skip
    assert made.answer(account, json.dumps(GOOD).encode()) is None
    assert made.answer(account, b"{") is None
    assert len(world.recorder.emitted) == len(FILTERS)


@pytest.mark.parametrize(
    "change",
    [
        (b"origin", b"https://page"), (b"transfer-encoding", b"chunked"), (b"content-length", b"1001"),
        (b"content-length", b"-1"), (b"content-type", b"text/plain"), (b"authorization", b"Bearer x"),
        (b"authorization", b"Basic x"), (b"authorization", b""),
    ],
)  # fmt: skip
async def test_what_needs_a_closer_look_is_not_accepted(world: World, change: tuple[bytes, bytes]) -> None:
    made, headers = direct(world)
    changed = [header for header in headers if header[0] != change[0]] + [change]
    assert made.accept(changed) is None
    assert made.accept(headers) == "acc"


async def test_a_bug_is_an_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made, headers = direct(world)

    def fail(*args: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(world.recorder, "emit_now", fail)
    answer = made.answer(str(made.accept(headers)), json.dumps(GOOD | {"event": "ephemeral"}).encode())
    assert answer == (500, b'{"error":"Internal error","statusCode":500}')


@pytest.mark.parametrize(("active", "said"), [(True, True), (False, False), (PresenceUnknown(), None)])
async def test_presence(world: World, client: httpx.AsyncClient, active: Any, said: Any) -> None:
    world.active = active
    answer = await client.get("/v1/presence")
    assert (answer.status_code, answer.json()) == (200, {"active": said})
