"""What unmodified Socket.IO clients can do with a Moorage server. Each test runs with both of them."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import aiohttp
import pytest

from moorage.client import Caller, Daemon

from .conftest import MakePeer, Site
from .peers import Refused


async def post(url: str, path: str, token: str, body: dict[str, Any]) -> Any:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http,
        http.post(url + path, json=body, headers={"Authorization": f"Bearer {token}"}) as response,
    ):
        assert response.status < 300, await response.text()
        return await response.json()


async def test_a_plain_caller_and_a_plain_daemon(site: Site, peer: MakePeer) -> None:
    daemon = await peer(site.first, clientType="machine-scoped", machineId="m1")
    await daemon.serve("m1:echo")
    caller = await peer(site.last)
    answer = await caller.ask("rpc-call", {"method": "m1:echo", "params": {"x": [1, "ü", None]}})
    assert answer == {"ok": True, "result": {"served": {"x": [1, "ü", None]}}}
    request = await daemon.event("rpc-request")
    assert set(request) == {"method", "params", "requestId"}


async def test_a_plain_caller_and_our_daemon(site: Site, peer: MakePeer, token: str) -> None:
    daemon = Daemon(site.first, token, machine_id="m1")
    daemon.add_method("m1:double", lambda params: params * 2)
    async with daemon:
        caller = await peer(site.last)
        answer = await caller.ask("rpc-call", {"method": "m1:double", "params": 21, "timeoutMs": 5000})
        assert answer == {"ok": True, "result": 42}


async def test_our_caller_and_a_plain_daemon(site: Site, peer: MakePeer, token: str) -> None:
    daemon = await peer(site.first, clientType="session-scoped", sessionId="s1")
    await daemon.serve("s1:echo")
    async with Caller(site.last, token) as caller:
        assert await caller.call("s1:echo", "x", timeout=5) == {"served": "x"}


async def test_registered_and_unregistered(site: Site, peer: MakePeer) -> None:
    daemon = await peer(site.first)
    await daemon.emit("rpc-register", {"method": "m"})
    registered = await daemon.event("rpc-registered")
    assert registered["method"] == "m"
    assert registered["scope"] in ("cluster", "local")
    await daemon.emit("rpc-unregister", {"method": "m"})
    assert await daemon.event("rpc-unregistered") == {"method": "m"}
    await daemon.emit("rpc-unregister", {"method": "never"})
    assert await daemon.event("rpc-unregistered") == {"method": "never"}
    caller = await peer(site.last)
    answer = await caller.ask("rpc-call", {"method": "m", "params": None, "timeoutMs": 200})
    assert answer == {
        "ok": False,
        "error": "RPC method not available",
        "code": "not_available",
        "delivered": "no",
    }


async def test_typed_ends(site: Site, peer: MakePeer) -> None:
    daemon = await peer(site.first)
    await daemon.serve("slow", hang=True)
    caller = await peer(site.last)
    answer = await caller.ask("rpc-call", {"method": "slow", "params": 1, "timeoutMs": 200})
    assert (answer["ok"], answer["code"], answer["error"]) == (False, "timeout", "operation has timed out")
    answer = await caller.ask("rpc-call", {"params": 1})
    assert (answer["code"], answer["error"]) == (
        "invalid_params",
        "Invalid parameters: method is required",
    )
    answer = await daemon.ask("rpc-call", {"method": "slow", "params": 1})
    assert (answer["code"], answer["error"]) == ("self_call", "Cannot call RPC on the same socket")


async def test_a_lost_daemon_ends_the_call(site: Site, peer: MakePeer) -> None:
    daemon = await peer(site.first)
    await daemon.serve("slow", hang=True)
    caller = await peer(site.last)
    call = asyncio.create_task(caller.ask("rpc-call", {"method": "slow", "params": 1}))
    await daemon.event("rpc-request")
    await daemon.close()
    answer = await call
    assert (answer["code"], answer["error"]) == ("target_disconnected", "RPC target disconnected")


async def test_a_cancelled_call(site: Site, peer: MakePeer) -> None:
    daemon = await peer(site.first)
    await daemon.serve("slow", hang=True)
    caller = await peer(site.last)
    request_id = uuid.uuid4().hex
    call = asyncio.create_task(
        caller.ask("rpc-call", {"method": "slow", "params": 1, "requestId": request_id})
    )
    assert (await daemon.event("rpc-request"))["requestId"] == request_id
    await caller.emit("rpc-cancel", {"requestId": request_id})
    assert await daemon.event("rpc-cancel") == {"requestId": request_id}
    assert (await call)["code"] == "cancelled"


async def test_the_newest_registration_wins(site: Site, peer: MakePeer) -> None:
    older, newer = await peer(site.first), await peer(site.last)
    await older.serve("m")
    await newer.serve("m")
    assert await older.event("rpc-superseded") == {"method": "m"}
    caller = await peer(site.first)
    assert (await caller.ask("rpc-call", {"method": "m", "params": 1}))["ok"]
    await newer.event("rpc-request", method="m")
    assert [name for name, _ in older.events if name == "rpc-request"] == []


async def test_ping(site: Site, peer: MakePeer) -> None:
    assert await (await peer(site.first)).ask("ping") == {}


async def test_broadcasts_are_received(site: Site, peer: MakePeer, token: str) -> None:
    near, far = await peer(site.first), await peer(site.last)
    machine = await peer(site.last, clientType="machine-scoped", machineId="m1")
    everybody = {"type": "all-user-authenticated-connections"}
    for number in range(3):
        await post(
            site.first,
            "/v1/emit",
            token,
            {"event": "update", "filter": everybody, "body": {"t": "test", "number": number}},
        )
    for receiver in (near, far, machine):
        updates = [await receiver.event("update") for _ in range(3)]
        assert [update["body"] for update in updates] == [{"t": "test", "number": n} for n in range(3)]
        assert {"id", "seq", "body", "createdAt"} <= set(updates[0])
    await post(
        site.last,
        "/v1/emit",
        token,
        {"event": "ephemeral", "filter": {"type": "user-scoped-only"}, "body": {"type": "test"}},
    )
    assert (await near.event("ephemeral", type="test"))["type"] == "test"
    assert (await far.event("ephemeral", type="test"))["type"] == "test"


async def test_a_message_reaches_the_others(site: Site, peer: MakePeer, token: str) -> None:
    session = (await post(site.first, "/v1/sessions", token, {"tag": "t", "metadata": "x"}))["session"]
    receiver = await peer(site.first)
    sender = await peer(site.last, clientType="session-scoped", sessionId=session["id"])
    answer = await sender.ask("message", {"sid": session["id"], "message": "hello", "localId": "l1"})
    assert answer["ok"] is True
    update = await receiver.event("update")
    assert (update["body"]["t"], update["body"]["sid"]) == ("new-message", session["id"])
    assert update["body"]["message"]["content"] == {"t": "encrypted", "c": "hello"}
    answer = await sender.ask("message", {"sid": "no such session", "message": "hello"})
    assert answer == {"ok": False, "error": "Session not found"}


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ({"token": ""}, "Missing authentication token"),
        ({"token": "nonsense"}, "Invalid authentication token"),
        ({"clientType": "session-scoped"}, "Session ID required for session-scoped clients"),
        ({"clientType": "machine-scoped"}, "Machine ID required for machine-scoped clients"),
    ],
)
async def test_refusals(site: Site, peer: MakePeer, auth: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused) as refused:
        await peer(site.first, **auth)
    assert str(refused.value) == message


@pytest.mark.parametrize("transports", [("polling",), ("polling", "websocket")], ids=["polling", "upgrade"])
async def test_polling(site: Site, peer: MakePeer, transports: tuple[str, ...]) -> None:
    daemon = await peer(site.first, transports=transports)
    await daemon.serve("m")
    caller = await peer(site.last, transports=transports)
    answer = await caller.ask("rpc-call", {"method": "m", "params": 1})
    assert answer == {"ok": True, "result": {"served": 1}}


async def test_junk_is_no_end(site: Site, peer: MakePeer) -> None:
    client = await peer(site.first)
    for junk in (None, 5, "x", [], {}, {"method": []}, {"method": "x" * 300}, {"sid": 5}):
        for event in (
            "rpc-register",
            "rpc-unregister",
            "rpc-cancel",
            "message",
            "app-state",
            "no-such-event",
        ):
            await client.emit(event, junk)
        answer = await client.ask("rpc-call", junk)
        assert (answer["ok"], answer["code"]) == (False, "invalid_params")
    assert await client.ask("ping") == {}
