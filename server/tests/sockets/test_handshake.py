from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from socketio.exceptions import ConnectionRefusedError

from moorage.accounts.tokens import InvalidToken, Tokens
from moorage.settings import load
from moorage.sockets.clients import Client, Clients
from moorage.sockets.handshake import Door, Refusal, admit, admit_or_fetch

TOKENS = Tokens(load(secret_key="s" * 40))
GOOD = TOKENS.issue("acc")

NO_TOKEN = "Missing authentication token"
NO_SESSION = "Session ID required for session-scoped clients"
NO_MACHINE = "Machine ID required for machine-scoped clients"
BAD_TOKEN = "Invalid authentication token"


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        (None, NO_TOKEN), ({}, NO_TOKEN), ([], NO_TOKEN), ("x", NO_TOKEN), (GOOD, NO_TOKEN), (5, NO_TOKEN),
        ({"token": ""}, NO_TOKEN), ({"token": None}, NO_TOKEN), ({"token": [GOOD]}, NO_TOKEN),
        ({"token": {"x": 1}}, NO_TOKEN), ({"clientType": "session-scoped"}, NO_TOKEN),
        ({"token": "bad", "clientType": "session-scoped"}, NO_SESSION),
        ({"token": GOOD, "clientType": "session-scoped", "sessionId": ""}, NO_SESSION),
        ({"token": GOOD, "clientType": "session-scoped", "sessionId": 7}, NO_SESSION),
        ({"token": GOOD, "clientType": "session-scoped", "sessionId": ["s"]}, NO_SESSION),
        ({"token": GOOD, "clientType": "session-scoped", "sessionId": "x" * 257}, NO_SESSION),
        ({"token": GOOD, "clientType": "session-scoped", "sessionId": "\ud800"}, NO_SESSION),
        ({"token": GOOD, "clientType": "session-scoped", "machineId": "m"}, NO_SESSION),
        ({"token": "bad", "clientType": "machine-scoped"}, NO_MACHINE),
        ({"token": GOOD, "clientType": "machine-scoped", "sessionId": "s"}, NO_MACHINE),
        ({"token": "bad", "clientType": "machine-scoped", "machineId": "m"}, BAD_TOKEN),
        ({"token": "bad"}, BAD_TOKEN), ({"token": "x" * 900_000}, BAD_TOKEN), ({"token": "\ud800"}, BAD_TOKEN),
        ({"token": TOKENS.issue("acc", ttl_ms=-1000)}, BAD_TOKEN),
    ],
)  # fmt: skip
async def test_refusals_and_their_order(auth: Any, message: str) -> None:
    assert admit(auth, TOKENS.verify) == Refusal(message)
    assert await admit_or_fetch(auth, TOKENS.verify_or_fetch) == Refusal(message)


@pytest.mark.parametrize(
    ("auth", "client"),
    [
        ({}, Client("acc", "user-scoped")),
        ({"clientType": "user-scoped", "sessionId": "s", "machineId": "m"}, Client("acc", "user-scoped")),
        ({"clientType": "unknown"}, Client("acc", "user-scoped")),
        ({"clientType": ["session-scoped"]}, Client("acc", "user-scoped")),
        ({"clientType": "session-scoped", "sessionId": "s"}, Client("acc", "session-scoped", session_id="s")),
        ({"clientType": "machine-scoped", "machineId": "m"}, Client("acc", "machine-scoped", machine_id="m")),
        ({"appState": "active"}, Client("acc", "user-scoped", app_state="active")),
        ({"appState": "background"}, Client("acc", "user-scoped", app_state="background")),
        ({"appState": ["active"]}, Client("acc", "user-scoped")),
        ({"client": "cli/1.0", "unknown": {"x": 1}}, Client("acc", "user-scoped", label="cli/1.0")),
        ({"client": "x" * 1000}, Client("acc", "user-scoped", label="x" * 64)),
        ({"client": 5}, Client("acc", "user-scoped")),
    ],
)
async def test_admissions(auth: Any, client: Client) -> None:
    assert admit({"token": GOOD, **auth}, TOKENS.verify) == client
    assert await admit_or_fetch({"token": GOOD, **auth}, TOKENS.verify_or_fetch) == client


texts = st.text(max_size=10)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(["token", "clientType", "sessionId", "machineId", "appState", "client"])
values = junk | st.sampled_from([GOOD, "session-scoped", "machine-scoped", "active"])


@given(junk | st.dictionaries(keys, values))
def test_anything_is_answered(auth: Any) -> None:
    result = admit(auth, TOKENS.verify)
    if isinstance(result, Refusal):
        assert result.message in (NO_TOKEN, NO_SESSION, NO_MACHINE, BAD_TOKEN)
    else:
        assert result.account == "acc"
        assert (result.session_id is not None) == (result.scope == "session-scoped")
        assert (result.machine_id is not None) == (result.scope == "machine-scoped")


class Entered:
    """A door, and what came through it."""

    def __init__(self) -> None:
        self.clients = Clients()
        self.joined: list[tuple[str, str]] = []
        self.told: list[tuple[str, str]] = []
        self.door = Door(
            self.clients, TOKENS.verify_or_fetch, lambda sid, room: self.joined.append((sid, room))
        )
        self.door.on_connected.append(lambda client: self.told.append(("connected", client.sid)))
        self.door.on_disconnected.append(lambda client: self.told.append(("disconnected", client.sid)))


async def test_a_socket_enters_its_rooms_and_one_line_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    entered = Entered()
    auth = {"token": GOOD, "clientType": "session-scoped", "sessionId": "s", "client": "private-label"}
    await entered.door.connect("sid-1", {}, auth)
    assert entered.joined == [("sid-1", "user:acc"), ("sid-1", "user:acc:session:s")]
    assert [record.getMessage() for record in caplog.records] == [
        "socket connected account=acc scope=session-scoped socket.id=sid-1"
    ]
    assert GOOD not in caplog.text
    entered.door.disconnect("sid-1", "transport close")
    entered.door.disconnect("sid-1")
    entered.door.disconnect("never")
    assert entered.told == [("connected", "sid-1"), ("disconnected", "sid-1")]
    assert len(entered.clients) == 0


async def test_who_is_refused_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    entered = Entered()
    with pytest.raises(ConnectionRefusedError) as caught:
        await entered.door.connect("sid-1", {}, {"token": "private-token"})
    assert caught.value.error_args == {"message": BAD_TOKEN}
    assert (entered.joined, entered.told, len(entered.clients)) == ([], [], 0)
    assert "private-token" not in caplog.text


@pytest.mark.parametrize("good", [True, False])
async def test_who_leaves_while_keys_are_fetched_is_not_kept(good: bool) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(token: str) -> str:
        asked.set()
        await go.wait()
        if not good:
            raise InvalidToken
        return "acc"

    clients = Clients()
    door = Door(clients, slow, lambda sid, room: None)
    task = asyncio.create_task(door.connect("sid-1", {}, {"token": "x"}))
    await asked.wait()
    door.disconnect("sid-1")
    go.set()
    with pytest.raises(ConnectionRefusedError):
        await task
    assert len(clients) == 0


def test_clients_are_found_by_what_they_are() -> None:
    clients = Clients()
    made = [
        Client("a", "user-scoped", sid="1"), Client("a", "user-scoped", sid="2"),
        Client("a", "machine-scoped", machine_id="m", sid="3"), Client("b", "user-scoped", sid="4"),
        Client("a", "session-scoped", session_id="s", sid="5"),
    ]  # fmt: skip
    for client in made:
        clients.add(client)
    assert [client.sid for client in clients.user_scoped("a")] == ["1", "2"]
    assert [client.sid for client in clients.machine("a", "m")] == ["3"]
    assert list(clients.machine("b", "m")) == []
    assert clients.remove("1") is made[0]
    assert [client.sid for client in clients.user_scoped("a")] == ["2"]
    for client in made[1:]:
        clients.remove(client.sid)
    assert (len(clients), list(clients.all()), clients._by_group) == (0, [], {})
