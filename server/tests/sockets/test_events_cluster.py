"""Events on the wire: once in one process without Redis, once over two replicas."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import socketio

from ..app.running import Client, Running, running, until
from ..valkey import Valkey

Pair = tuple[Running, Running]


@pytest.fixture(params=["one process", "two replicas"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    if request.param == "one process":
        async with running(None) as alone:
            yield alone, alone
    else:
        url = request.getfixturevalue("valkey").url
        async with running(url, "a") as a, running(url, "b") as b:
            yield a, b


@pytest.fixture
async def replicas(valkey: Valkey) -> AsyncIterator[Pair]:
    async with running(valkey.url, "a") as a, running(valkey.url, "b") as b:
        await until(
            lambda: all(len(r.replica.membership.members) == 1 for r in (a, b) if r.replica.membership)
        )
        yield a, b


def now() -> int:
    return int(time.time() * 1000)


async def post(at: Running, path: str, body: Any, account: str = "acc") -> Any:
    async with httpx.AsyncClient(
        base_url=at.url, headers={"Authorization": f"Bearer {at.token(account)}"}
    ) as http:
        answer = await http.post(path, json=body)
        assert answer.status_code < 300
        return answer.json()


async def heard_of(ui: Client, other: Running) -> None:
    """Until ``other`` knows that somebody listens where ``ui`` is connected."""
    await until(lambda: other.replica.registry.listens("acc") and not len(ui.at.replica.background))


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ({}, "Missing authentication token"),
        ({"token": "x"}, "Invalid authentication token"),
        ({"token": "x", "clientType": "session-scoped"}, "Session ID required for session-scoped clients"),
        ({"token": "x", "clientType": "machine-scoped"}, "Machine ID required for machine-scoped clients"),
    ],
)
async def test_refusals_on_the_wire(auth: Any, message: str) -> None:
    async with running(None) as alone:
        client, errors = socketio.AsyncClient(reconnection=False), []
        client.on("connect_error", errors.append)
        with pytest.raises(socketio.exceptions.ConnectionError):
            await client.connect(alone.url, socketio_path="/v1/updates", transports=["websocket"], auth=auth)
        assert errors == [{"message": message}]
        assert len(alone.replica.clients) == 0


async def test_a_message_reaches_everybody_but_the_sender_once(pair: Pair) -> None:
    a, b = pair
    async with Client(a) as ui_a, Client(b) as ui_b, Client(b, "other") as stranger:
        session = (await post(a, "/v1/sessions", {"tag": "t", "metadata": None}))["session"]
        scope = {"clientType": "session-scoped", "sessionId": session["id"]}
        async with Client(a, **scope) as sender, Client(b, **scope) as twin:
            payload = {"sid": session["id"], "message": "x", "localId": "l"}
            ack = await sender.ack("message", payload)
            assert await twin.ack("message", payload) == ack
            await post(b, "/v1/emit", {"event": "update", "filter": {"type": "all-user-authenticated-connections"},
                                       "body": {"t": "end"}})  # fmt: skip
            for client, expected in (
                (ui_a, ["new-session", "new-message", "end"]),
                (ui_b, ["new-session", "new-message", "end"]),
                (twin, ["new-message", "end"]),
                (sender, ["end"]),
            ):
                await until(
                    lambda client=client: (
                        client.of("update")[-1:] and client.of("update")[-1]["body"]["t"] == "end"
                    )
                )
                assert [update["body"]["t"] for update in client.of("update")] == expected
            assert [update["seq"] for update in ui_b.of("update")] == [1, 2, 3]
            assert ack == {"ok": True, "id": ui_b.of("update")[1]["body"]["message"]["id"], "seq": 2}
            assert stranger.of("update") == []


async def test_activity_is_told_once_and_again_to_a_new_audience(pair: Pair) -> None:
    a, b = pair
    alive = {"sid": "s", "time": now(), "thinking": True}
    async with Client(a, clientType="session-scoped", sessionId="s") as daemon, Client(b) as ui:
        await heard_of(ui, a)
        for _ in range(5):
            await daemon.sio.emit("session-alive", alive)
        await daemon.ack("ping")
        await until(lambda: ui.of("ephemeral"))
        assert ui.of("ephemeral") == [
            {"type": "activity", "id": "s", "active": True, "activeAt": alive["time"], "thinking": True}
        ]
        async with Client(b) as late:
            # The news of an audience travels too, so the daemon goes on living until it has arrived.
            async with asyncio.timeout(5):
                while not late.of("ephemeral"):
                    await daemon.sio.emit("session-alive", alive)
                    await daemon.ack("ping")
            assert late.of("ephemeral")[0]["id"] == "s"


def broadcasts(valkey: Valkey) -> int:
    """Entries that are no markers of recovery."""
    return sum(fields[b"type"] == b"3" for _, fields in valkey.client.xrange("socket.io"))


async def test_nothing_is_written_where_nothing_changed_or_nobody_listens(
    replicas: Pair, valkey: Valkey
) -> None:
    a, b = replicas
    async with Client(a, clientType="session-scoped", sessionId="s") as daemon:
        for thinking in (True, False) * 5:
            await daemon.sio.emit("session-alive", {"sid": "s", "time": now(), "thinking": thinking})
        await daemon.ack("ping")
        assert broadcasts(valkey) == 0
        async with Client(b) as ui:
            await heard_of(ui, a)
            await daemon.sio.emit("session-alive", {"sid": "s", "time": now()})
            await until(lambda: ui.of("ephemeral"))
            before = broadcasts(valkey)
            for _ in range(20):
                await daemon.sio.emit("session-alive", {"sid": "s", "time": now()})
            await daemon.ack("ping")
            assert broadcasts(valkey) == before


async def test_a_machine_that_moves_to_another_replica_never_left(replicas: Pair) -> None:
    a, b = replicas
    async with Client(a) as ui:
        await heard_of(ui, b)
        scope = {"clientType": "machine-scoped", "machineId": "m"}
        old = Client(a, **scope)
        await old.__aenter__()
        async with Client(b, **scope):
            await old.__aexit__()
            await until(lambda: len(a.replica.clients) == 1 and not len(a.replica.background))
            assert all(body["active"] for body in ui.of("ephemeral"))
        await until(lambda: ui.of("ephemeral")[-1:] and not ui.of("ephemeral")[-1]["active"])
        assert [body["active"] for body in ui.of("ephemeral")].count(False) == 1
