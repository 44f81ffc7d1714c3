"""Junk over every event and every route of a whole replica: typed answers, and the process goes on."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .running import Client, Running, running

EVENTS = (
    "ping", "app-state", "rpc-register", "rpc-unregister", "rpc-call", "rpc-cancel", "session-alive",
    "machine-alive", "session-end", "message", "subscribe", "unsubscribe", "reply", "no-such-event",
    "rpc-request", "update",
)  # fmt: skip
KEYS = (
    "method", "params", "timeoutMs", "requestId", "onTargetLost", "resumable", "state", "sid", "machineId", "time",
    "thinking", "message", "localId", "sessionId", "questionId", "answer", "lastEventId",
)  # fmt: skip
# No NaN: bare NaN is not JSON, and Socket.IO servers close the sender.
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
PAYLOADS = JSON | st.dictionaries(st.sampled_from(KEYS), JSON, max_size=6)
SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
BODIES = st.binary(max_size=60) | JSON.map(
    lambda value: repr(value).replace("'", '"').encode("utf-8", "replace")
)
TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=20).filter(
    lambda t: t != "docs"
)
CODES = {
    "invalid_params",
    "not_available",
    "self_call",
    "overloaded",
    "cancelled",
    "timeout",
    "target_disconnected",
}


def test_every_event_with_any_payload() -> None:
    """One replica for all examples. A client that is cut for breaking the protocol comes back; nobody else is."""
    errors: list[Any] = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda loop, context: errors.append(context))
        stack = AsyncExitStack()

        async def start() -> tuple[Running, Client]:
            replica = await stack.enter_async_context(
                running(None, rpc_reconnect_grace_ms=20, rpc_call_timeout_ms=50)
            )
            return replica, await stack.enter_async_context(Client(replica, "bystander"))

        replica, bystander = runner.run(start())

        async def send(batch: list[tuple[str, Any, bool]]) -> None:
            acks: list[Any] = []
            async with Client(replica, clientType="machine-scoped", machineId="m") as client:
                for event, payload, wants_ack in batch:
                    is_call = wants_ack and event == "rpc-call"
                    try:
                        await client.sio.emit(event, payload, callback=acks.append if is_call else None)
                    except (TypeError, ValueError):
                        continue  # what the client itself cannot encode
                assert await client.ack("ping") == {}
            assert await bystander.ack("ping") == {}
            assert {event for event, _ in bystander.got} <= {"rpc-waiting"}
            assert all(ack["ok"] or ack["code"] in CODES for ack in acks)

        @settings(max_examples=60, **SLOW)  # type: ignore[arg-type]
        @given(st.lists(st.tuples(st.sampled_from(EVENTS), PAYLOADS, st.booleans()), min_size=1, max_size=30))
        def over(batch: list[tuple[str, Any, bool]]) -> None:
            runner.run(asyncio.wait_for(send(batch), 20))

        try:
            over()
        finally:
            runner.run(stack.aclose())
    assert errors == []


ROUTES = (
    ("POST", "/v1/auth"), ("POST", "/v1/sessions"), ("GET", "/v1/sessions"), ("DELETE", "/v1/sessions/{x}"),
    ("GET", "/v1/sessions/{x}/messages"), ("POST", "/v1/emit"), ("GET", "/v1/presence"), ("GET", "/health"),
    ("GET", "/ready"), ("GET", "/{x}"), ("PUT", "/v1/auth"), ("POST", "/v1/sessions/{x}/tasks"),
    ("GET", "/v1/sessions/{x}/turn"), ("POST", "/v1/sessions/{x}/replies"), ("GET", "/v1/tasks/{x}"),
)  # fmt: skip


def test_every_route_with_any_body() -> None:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> tuple[Running, httpx.AsyncClient]:
            replica = await stack.enter_async_context(running(None))
            return replica, await stack.enter_async_context(httpx.AsyncClient(base_url=replica.url))

        replica, http = runner.run(start())
        token = f"Bearer {replica.token()}"

        async def send(method: str, path: str, body: bytes, text: str, signed: bool) -> None:
            headers = {"content-type": "application/json", **({"authorization": token} if signed else {})}
            where = f"{path.format(x=quote(text, safe=''))}?{quote(text)}={quote(text)}"
            answer = await http.request(method, where, content=body, headers=headers)
            assert answer.status_code < 500, (method, path, answer.status_code)
            if answer.status_code >= 400:
                assert answer.json()["statusCode"] == answer.status_code
                assert answer.json()["error"]
            assert (await http.get("/health")).json()["status"] == "ok"

        @settings(max_examples=150, **SLOW)  # type: ignore[arg-type]
        @given(st.sampled_from(ROUTES), BODIES, TEXTS, st.booleans())
        def over(route: tuple[str, str], body: bytes, text: str, signed: bool) -> None:
            runner.run(asyncio.wait_for(send(*route, body, text, signed), 20))

        try:
            over()
        finally:
            runner.run(stack.aclose())


@pytest.mark.parametrize("size", [999_000, 1_001_000])
async def test_large_messages(size: int) -> None:
    async with running(None) as replica, Client(replica) as client, Client(replica) as other:
        if size < 1_000_000:
            await client.register("m")
            ack = await other.ack("rpc-call", {"method": "m", "params": "x" * size})
            assert len(ack["result"]["echo"]) == size
        else:
            await client.sio.emit("rpc-call", {"method": "m", "params": "x" * size})
            async with asyncio.timeout(10):
                while client.sio.connected:
                    await asyncio.sleep(0.01)
        assert await other.ack("ping") == {}
