from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .conftest import World, make_world

ROUTES = [
    ("POST", "/v1/sessions"), ("GET", "/v1/sessions"), ("DELETE", "/v1/sessions/x"),
    ("GET", "/v1/sessions/x/messages"), ("POST", "/v1/emit"), ("GET", "/v1/presence"),
]  # fmt: skip
BODIES: dict[str, Any] = {
    "/v1/sessions": {"tag": "t", "metadata": None},
    "/v1/emit": {"event": "update", "filter": {"type": "user-scoped-only"}, "body": {}},
}


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_every_route_wants_a_good_token(nobody: httpx.AsyncClient, method: str, path: str) -> None:
    async def ask(header: str | bytes | None) -> tuple[int, Any, str | None]:
        headers = {"Authorization": header} if header is not None else {}
        answer = await nobody.request(method, path, headers=headers, json=BODIES.get(path))
        return answer.status_code, answer.json(), answer.headers.get("WWW-Authenticate")

    missing = (401, {"error": "Missing authorization header", "statusCode": 401}, "Bearer")
    for header in (None, "", "Basic eDp5", "Bearer", "Bearer "):
        assert await ask(header) == missing
    for header in ("Bearer x", "Bearer a.b.c", "bearer é".encode()):
        assert await ask(header) == (401, {"error": "Invalid token", "statusCode": 401}, "Bearer")


async def test_unknown_routes_and_methods(client: httpx.AsyncClient) -> None:
    for method, path, status, error in (
        ("GET", "/nothing", 404, "Not Found"),
        ("GET", "/v1/sessions/", 404, "Not Found"),
        ("PUT", "/v1/sessions", 405, "Method Not Allowed"),
        ("GET", "/v1/auth", 405, "Method Not Allowed"),
    ):
        answer = await client.request(method, path)
        assert (answer.status_code, answer.json()) == (status, {"error": error, "statusCode": status})
    assert "POST" in (await client.get("/v1/auth")).headers["Allow"]


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_the_limit(chunked: bool) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b" " * 1000

    world = make_world(max_payload_bytes=10_000)
    async with world.client() as client:
        body: Any = chunks() if chunked else b" " * 10_001
        answer = await client.post("/v1/sessions", content=body, headers={"Content-Type": "application/json"})
        said = {"error": "Payload Too Large", "message": "More than 10000 bytes", "statusCode": 413}
        assert (answer.status_code, answer.json()) == (413, said)
        fits = json.dumps({"tag": "t", "metadata": "x" * 9000}).encode().ljust(10_000)
        answer = await client.post("/v1/sessions", content=fits, headers={"Content-Type": "application/json"})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    "content",
    [
        b"{", b"", b"\xff\xfe", b"[" * 100_000, b'{"tag":"t","metadata":' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"tag":"\\ud800"}', b'{"tag":"t","metadata":"\\ud800"}', b'{"tag":"t","metadata":' + b"9" * 5000 + b"}",
        b'{"tag":"t","\\ud800":1}', b'{"tag":"t","metadata":{"\\ud800":1}}',
    ],
)  # fmt: skip
async def test_what_no_json_reader_should_get(client: httpx.AsyncClient, content: bytes) -> None:
    answer = await client.post("/v1/sessions", content=content, headers={"Content-Type": "application/json"})
    if b'"\\ud800":1}' in content and b"metadata" not in content:
        assert answer.status_code == 200  # an unknown key is ignored, whatever it is
    else:
        assert answer.status_code in (400, 422)
        assert answer.json()["statusCode"] == answer.status_code


async def test_not_a_number_becomes_null(client: httpx.AsyncClient) -> None:
    content = b'{"tag":"t","metadata":[NaN,Infinity,-Infinity]}'
    answer = await client.post("/v1/sessions", content=content, headers={"Content-Type": "application/json"})
    assert answer.json()["session"]["metadata"] == [None, None, None]


async def test_a_bug_is_an_answer_without_details(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.active = RuntimeError("private detail")
    async with world.client() as client:
        answer = await client.get("/v1/presence")
    assert (answer.status_code, answer.json()) == (500, {"error": "Internal error", "statusCode": 500})
    assert "RuntimeError" in caplog.text
    assert "private detail" not in caplog.text
    assert "presence" in caplog.text


async def test_other_origins_may_read_answers_and_errors(client: httpx.AsyncClient) -> None:
    answer = await client.get("/v1/sessions", headers={"Origin": "https://app.example", "Authorization": "x"})
    assert answer.status_code == 401
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    preflight = await client.options(
        "/v1/sessions/x",
        headers={
            "Origin": "https://app.example",
            "Access-Control-Request-Method": "DELETE",
            "Access-Control-Request-Headers": "authorization",
        },
    )
    assert preflight.status_code == 200
    async with make_world(cors_allowed_origins=["https://one.example"]).client() as strict:
        for origin, allowed in (
            ("https://one.example", "https://one.example"),
            ("https://two.example", None),
        ):
            answer = await strict.get("/health", headers={"Origin": origin})
            assert answer.headers.get("Access-Control-Allow-Origin") == allowed


async def test_the_api_describes_itself(client: httpx.AsyncClient) -> None:
    spec = (await client.get("/openapi.json")).json()
    assert set(spec["paths"]) == {
        "/v1/auth", "/v1/sessions", "/v1/sessions/{session_id}", "/v1/sessions/{session_id}/messages",
        "/v1/sessions/{session_id}/events", "/v1/sessions/{session_id}/tasks",
        "/v1/sessions/{session_id}/turn", "/v1/sessions/{session_id}/replies", "/v1/tasks/{task_id}",
        "/v1/emit", "/v1/presence", "/health", "/ready",
    }  # fmt: skip
    assert spec["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    for path, methods in spec["paths"].items():
        for method, operation in methods.items():
            assert operation["tags"], path
            secured = (method, path) not in (("post", "/v1/auth"), ("get", "/health"), ("get", "/ready"))
            assert ("security" in operation) is secured, path
    assert (await client.get("/docs")).status_code == 200


texts = st.text(max_size=20)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
names = ["tag", "metadata", "event", "filter", "body", "skipSocketId", "type", "sessionId", "machineId", "publicKey",
         "challenge", "signature"]  # fmt: skip
types = st.sampled_from(
    ["update", "ephemeral", "user-scoped-only", "all-interested-in-session", "machine-scoped-only"]
)
shaped = st.dictionaries(
    st.sampled_from(names), junk | types | st.dictionaries(st.sampled_from(names), junk | types), max_size=6
)


@given(
    path=st.sampled_from(["/v1/auth", "/v1/sessions", "/v1/emit"]),
    body=junk | shaped,
    raw=st.none() | st.binary(max_size=40),
    kind=st.sampled_from(["application/json", "text/plain", ""]),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_body_is_a_server_error(
    client: httpx.AsyncClient, path: str, body: Any, raw: bytes | None, kind: str
) -> None:
    content = json.dumps(body).encode() if raw is None else raw
    answer = await client.post(path, content=content, headers={"Content-Type": kind})
    assert answer.status_code in (200, 202, 400, 401, 422)
    if answer.status_code >= 400:
        assert answer.json()["statusCode"] == answer.status_code
        assert set(answer.json()) <= {"error", "message", "statusCode"}


# A client takes "." and ".." out of a path: that is another route.
@given(
    session=texts.filter(lambda text: text not in (".", "..")),
    after=texts | st.integers().map(str),
    limit=texts | st.integers().map(str),
)
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_query_is_a_server_error(
    client: httpx.AsyncClient, session: str, after: str, limit: str
) -> None:
    path = f"/v1/sessions/{quote(session, safe='', errors='replace')}/messages"
    params = {
        key: value.encode("utf-8", "replace") for key, value in (("after_seq", after), ("limit", limit))
    }
    answer = await client.get(path, params=params)
    assert answer.status_code in (404, 422)
    assert (await client.get("/ready", params={"peer": after})).status_code == 200
