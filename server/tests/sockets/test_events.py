from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.errors import BackplaneUnavailable, BackplaneUnknown
from moorage.sockets import events as module

from .world import World


@pytest.fixture
async def world() -> World:
    return World()


async def test_ping(world: World) -> None:
    assert await world.send(world.connect(), "ping") == {}
    assert await world.send(world.connect(), "ping", {"junk": 1}, 2) == {}
    world.events.on_ping("sid-1", [], None)


async def test_app_state(world: World) -> None:
    client = world.connect()
    for sent, state in (
        ("active", "active"),
        ("background", "background"),
        ("other", "background"),
        (5, "background"),
    ):
        world.send(client, "app-state", {"state": sent})
        assert client.app_state == state
    world.send("never connected", "app-state", {"state": "active"})


# -- message -------------------------------------------------------------------------------------------


async def session(world: World, account: str = "u") -> str:
    return (await world.state.create_session(account, "t", None))[0].id


async def test_a_message_is_stored_told_and_acknowledged(world: World) -> None:
    sid, sender = await session(world), world.connect("u", "session-scoped", session_id="s")
    ack = await world.send(sender, "message", {"sid": sid, "message": "secret", "localId": "l"})
    (sent,) = world.recorder.emitted
    message = sent.payload["body"]["message"]
    assert sent.event == "update"
    assert set(sent.rooms) == {f"user:u:session:{sid}", "user:u:user-scoped"}
    assert sent.skipped == (sender.sid,)
    assert sent.payload.keys() == {"id", "seq", "body", "createdAt"}
    assert sent.payload["body"] == {"t": "new-message", "sid": sid, "message": message}
    assert message.keys() == {"id", "seq", "content", "localId", "createdAt"}
    assert (message["seq"], message["content"], message["localId"]) == (
        1,
        {"t": "encrypted", "c": "secret"},
        "l",
    )
    assert ack == {"ok": True, "id": message["id"], "seq": sent.payload["seq"]}
    page = await world.state.list_messages("u", sid, 0, 10)
    assert page is not None
    assert [stored.as_json() for stored in page[0]] == [message]


async def test_a_skipped_sender_finds_the_number_of_its_update_in_the_ack(world: World) -> None:
    sid, sender = await session(world), world.connect()
    await world.updates.update("u", "user-scoped-only", None, {"t": "other"})
    ack = await world.send(sender, "message", {"sid": sid, "message": {"any": ["json"]}})
    assert ack["seq"] == 2
    assert world.recorder.emitted[-1].payload["body"]["message"]["content"] == {"any": ["json"]}


async def test_the_same_local_id_is_one_message_told_once(world: World) -> None:
    sid, sender, second = await session(world), world.connect(), world.connect()
    sends = [world.send(sender, "message", {"sid": sid, "message": "x", "localId": "l"}) for _ in range(3)]
    acks = await asyncio.gather(*sends)
    acks.append(await world.send(second, "message", {"sid": sid, "message": "y", "localId": "l"}))
    assert acks == [acks[0]] * 4
    assert len(world.recorder.emitted) == 1


async def test_a_message_stored_but_not_told_is_told_by_its_repetition(world: World) -> None:
    sid, sender = await session(world), world.connect()
    payload = {"sid": sid, "message": "x", "localId": "l"}
    world.recorder.fails = BackplaneUnknown()
    assert await world.send(sender, "message", payload) == {"ok": False, "error": "Backplane unavailable"}
    world.recorder.fails = None
    ack = await world.send(sender, "message", payload)
    assert (ack["ok"], ack["seq"], len(world.recorder.emitted)) == (True, 1, 1)
    assert await world.send(sender, "message", payload) == ack
    assert len(world.recorder.emitted) == 1


async def test_without_backplane_nothing_is_stored(world: World) -> None:
    sid, sender = await session(world), world.connect()
    world.recorder.up = False
    ack = await world.send(sender, "message", {"sid": sid, "message": "x"})
    assert ack == {"ok": False, "error": "Backplane unavailable"}
    assert await world.state.list_messages("u", sid, 0, 10) == ([], False)


async def test_another_accounts_session_is_unknown(world: World) -> None:
    sid, stranger = await session(world), world.connect("stranger")
    for unknown in (sid, "never-was"):
        ack = await world.send(stranger, "message", {"sid": unknown, "message": "x"})
        assert ack == {"ok": False, "error": "Session not found"}
    assert await world.state.list_messages("u", sid, 0, 10) == ([], False)
    assert world.recorder.emitted == []


async def test_the_order_of_one_socket_is_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    sid, sender, other = await session(world), world.connect(), world.connect()
    add = world.state.add_message

    async def slower_and_slower(account: str, session_id: str, content: Any, local_id: str | None) -> Any:
        for _ in range(20 - content["n"] if content["n"] < 20 else 0):
            await asyncio.sleep(0)
        return await add(account, session_id, content, local_id)

    monkeypatch.setattr(world.state, "add_message", slower_and_slower)
    sends = [world.send(sender, "message", {"sid": sid, "message": {"n": n}}) for n in range(20)]
    quick = await world.send(other, "message", {"sid": sid, "message": {"n": 99}})
    assert quick["ok"]
    assert not sends[-1].done()
    acks = await asyncio.gather(*sends)
    assert [ack["seq"] for ack in acks] == sorted(ack["seq"] for ack in acks)
    told = [sent.payload["body"]["message"]["content"]["n"] for sent in world.recorder.emitted]
    assert [n for n in told if n != 99] == list(range(20))
    await world.idle()
    assert world.events._queues == {}


async def test_messages_sent_before_leaving_are_stored(world: World) -> None:
    sid, sender = await session(world), world.connect()
    for n in range(5):
        world.events.on_message(sender.sid, [{"sid": sid, "message": str(n)}], None)
    world.disconnect(sender)
    await world.idle()
    page = await world.state.list_messages("u", sid, 0, 10)
    assert page is not None
    assert [message.content["c"] for message in page[0]] == list("01234")


async def test_what_waits_is_bounded_in_number_and_bytes(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid, sender = await session(world), world.connect()
    monkeypatch.setattr(module, "PENDING_MAX", 3)
    sends = [world.send(sender, "message", {"sid": sid, "message": str(n)}) for n in range(4)]
    acks = await asyncio.gather(*sends)
    assert [ack["ok"] for ack in acks] == [True, True, True, False]
    assert acks[-1] == {"ok": False, "error": "Too many messages in flight"}
    await world.idle()
    monkeypatch.setattr(module, "PENDING_MAX_BYTES", 100)
    sends = [world.send(sender, "message", {"sid": sid, "message": "x" * 60}) for n in range(2)]
    assert [ack["ok"] for ack in await asyncio.gather(*sends)] == [True, False]
    await world.idle()
    assert (await world.send(sender, "message", {"sid": sid, "message": "x"}))["ok"]


@pytest.mark.parametrize(
    "payload",
    [
        None, [], "x", {}, {"sid": "s"}, {"message": "x"}, {"sid": 5, "message": "x"}, {"sid": "", "message": "x"},
        {"sid": "s", "message": None}, {"sid": "s", "message": b"bytes"}, {"sid": "s", "message": {"x": b"bytes"}},
        {"sid": "s", "message": "\ud800"}, {"sid": "s", "message": 2**70}, {"sid": "s", "message": "x", "localId": 5},
        {"sid": "s", "message": "x", "localId": ""}, {"sid": "s", "message": "x", "localId": "x" * 257},
        {"sid": "\ud800", "message": "x"},
    ],
)  # fmt: skip
async def test_bad_messages(world: World, payload: Any) -> None:
    client = world.connect()
    assert await world.send(client, "message", payload) == {"ok": False, "error": "Invalid parameters"}
    world.events.on_message(client.sid, [payload], None)
    world.events.on_message(client.sid, [], None)


async def test_a_storage_that_breaks_ends_one_message_only(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sid, sender = await session(world), world.connect()
    real = world.state.add_message
    errors: list[Exception] = [BackplaneUnavailable(), ValueError("private-content")]

    async def breaking(*args: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return await real(*args)

    monkeypatch.setattr(world.state, "add_message", breaking)
    sends = [world.send(sender, "message", {"sid": sid, "message": "private-content"}) for _ in range(3)]
    acks = await asyncio.gather(*sends)
    assert acks[0] == {"ok": False, "error": "Backplane unavailable"}
    assert acks[1] == {"ok": False, "error": "Internal error"}
    assert acks[2]["ok"]
    assert "ValueError" in caplog.text
    assert "private-content" not in caplog.text


# -- junk ----------------------------------------------------------------------------------------------

texts = st.text(max_size=10)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
fields = st.sampled_from(["sid", "time", "thinking", "machineId", "message", "localId", "state"])
payloads = junk | st.dictionaries(fields, junk | st.sampled_from(["active", "m", time.time() * 1000]))


@given(
    event=st.sampled_from(["ping", "app-state", "session-alive", "machine-alive", "session-end", "message"]),
    args=st.lists(payloads, max_size=3),
    known=st.booleans(),
    asked=st.booleans(),
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_no_payload_is_an_exception(
    world: World, caplog: pytest.LogCaptureFixture, event: str, args: list[Any], known: bool, asked: bool
) -> None:
    sid = world.connect().sid if known else "nobody"
    answers: list[Any] = []
    world.events.handlers[event](sid, args, (lambda *answer: answers.append(answer)) if asked else None)
    await world.idle()
    assert len(answers) <= 1
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
