from __future__ import annotations

import itertools
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.errors import BackplaneUnavailable
from moorage.sockets import activity as module

from .world import World

NOW = 1_800_000_000_000


@pytest.fixture(autouse=True)
def fixed_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_now", lambda: NOW)


@pytest.fixture
async def world() -> World:
    return World()


def alive(world: World, client: Any, sid: str = "s", at: Any = NOW, **more: Any) -> None:
    world.send(client, "session-alive", {"sid": sid, "time": at, **more})


async def test_a_session_is_told_when_something_changed_only(world: World) -> None:
    daemon = world.connect("u", "session-scoped", session_id="s")
    for more in ({}, {}, {"thinking": False}, {"thinking": True}, {"thinking": True}, {"thinking": "yes"}):
        alive(world, daemon, **more)
    world.send(daemon, "session-end", {"sid": "s", "time": NOW + 5})
    world.send(daemon, "session-end", {"sid": "s", "time": NOW + 5})
    assert world.told() == [
        {"type": "activity", "id": "s", "active": True, "activeAt": NOW, "thinking": False},
        {"type": "activity", "id": "s", "active": True, "activeAt": NOW, "thinking": True},
        {"type": "activity", "id": "s", "active": True, "activeAt": NOW, "thinking": False},
        {"type": "activity", "id": "s", "active": False, "activeAt": NOW, "thinking": False},
    ]
    assert {sent.rooms for sent in world.recorder.emitted} == {("user:u:user-scoped",)}


async def test_nothing_is_told_when_nobody_listens_but_later_it_is(world: World) -> None:
    daemon = world.connect("u", "session-scoped", session_id="s")
    world.listening = False
    alive(world, daemon)
    assert world.told() == []
    world.listening = True
    alive(world, daemon)
    alive(world, daemon)
    assert len(world.told()) == 1


async def test_a_new_user_interface_is_told_what_goes_on(world: World) -> None:
    daemon = world.connect("u", "session-scoped", session_id="s")
    alive(world, daemon)
    world.connect("other")
    alive(world, daemon)
    assert len(world.told()) == 1
    world.connect("u")
    alive(world, daemon)
    alive(world, daemon)
    assert len(world.told()) == 2


async def test_the_session_list_shows_it(world: World) -> None:
    session, _ = await world.state.create_session("u", "t", None)
    daemon = world.connect()
    for event, active in (("session-end", False), ("session-alive", True), ("session-end", False)):
        world.send(daemon, event, {"sid": session.id, "time": NOW})
        await world.idle()
        assert [one.active for one in await world.state.list_sessions("u")] == [active]


async def test_only_changes_are_stored_and_a_failure_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[Any] = []
    errors = [BackplaneUnavailable()]

    async def set_active(*args: Any) -> bool:
        stored.append(args)
        if errors:
            raise errors.pop()
        return True

    monkeypatch.setattr(world.state, "set_active", set_active)
    daemon = world.connect()
    for _ in range(4):
        alive(world, daemon)
        await world.idle()
    assert stored == [("u", "s", True, NOW)] * 2


async def test_accounts_are_apart(world: World) -> None:
    one, two = world.connect("one"), world.connect("two")
    alive(world, one)
    alive(world, two)
    assert [sent.rooms for sent in world.recorder.emitted] == [
        ("user:one:user-scoped",),
        ("user:two:user-scoped",),
    ]


@pytest.mark.parametrize("at", [None, "now", True, float("nan"), float("inf"), -1, 2**60, [NOW]])
async def test_a_time_that_is_none(world: World, at: Any) -> None:
    client = world.connect()
    alive(world, client, at=at)
    world.send(client, "machine-alive", {"machineId": "m", "time": at})
    world.send(client, "session-end", {"sid": "s", "time": at})
    assert world.told() == []


async def test_a_clock_ahead_is_brought_back(world: World) -> None:
    alive(world, world.connect(), at=NOW + 60_000)
    assert world.told()[0]["activeAt"] == NOW


# -- machines ------------------------------------------------------------------------------------------


def machine(world: World) -> Any:
    return world.connect("u", "machine-scoped", machine_id="m")


def is_active(active: bool) -> dict[str, Any]:
    return {"type": "machine-activity", "id": "m", "active": active, "activeAt": NOW}


async def test_connecting_and_leaving_are_signs_of_life(world: World) -> None:
    client = machine(world)
    world.send(client, "machine-alive", {"machineId": "m", "time": NOW})
    assert world.told() == [is_active(True)]
    world.disconnect(client)
    await world.idle()
    assert world.told() == [is_active(True), is_active(False)]
    assert world.asked == [("activity", ["machine", "u", "m"])]


async def test_no_flap_while_a_newer_socket_lives_here(world: World) -> None:
    old, new = machine(world), machine(world)
    world.disconnect(old)
    await world.idle()
    assert world.told() == [is_active(True)]
    world.disconnect(new)
    await world.idle()
    assert world.told()[-1] == is_active(False)


async def test_no_flap_while_a_newer_socket_lives_elsewhere(world: World) -> None:
    client = machine(world)
    world.peer_answers = [False, True]
    world.disconnect(client)
    await world.idle()
    assert world.told() == [is_active(True)]


async def test_a_machine_back_before_the_peers_answered_never_left(world: World) -> None:
    client = machine(world)
    world.disconnect(client)
    machine(world)
    await world.idle()
    assert world.told() == [is_active(True)]


async def test_a_session_that_was_elsewhere_meanwhile_is_news_again(world: World) -> None:
    session, _ = await world.state.create_session("u", "t", None)
    daemon = world.connect("u", "session-scoped", session_id=session.id)
    alive(world, daemon, session.id)
    world.disconnect(daemon)
    await world.idle()
    await world.state.set_active("u", session.id, False, NOW)  # ended on another replica
    alive(world, world.connect("u", "session-scoped", session_id=session.id), session.id)
    await world.idle()
    assert [body["active"] for body in world.told()] == [True, True]
    assert [one.active for one in await world.state.list_sessions("u")] == [True]
    assert len(world.activity._reported) == 1


async def test_a_machine_that_was_elsewhere_meanwhile_is_news_again(world: World) -> None:
    world.peer_answers = [True]
    world.disconnect(machine(world))
    await world.idle()
    machine(world)
    assert world.told() == [is_active(True), is_active(True)]


async def test_a_machine_that_nobody_listens_to_leaves_silently(world: World) -> None:
    client = machine(world)
    world.listening = False
    world.disconnect(client)
    await world.idle()
    assert world.told() == [is_active(True)]


async def test_a_peer_that_never_answers_does_not_keep_a_machine_alive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ASK_TIMEOUT_S", 0.01)
    client = machine(world)
    world.peers_complete = False
    world.disconnect(client)
    await world.idle()
    assert len(world.asked) == module.ASK_TRIES
    assert world.told()[-1] == is_active(False)


async def test_a_peers_question_about_a_machine(world: World) -> None:
    machine(world)
    assert world.activity.answer(["machine", "u", "m"]) is True
    for rest in (["u", "x"], ["x", "m"], ["u"], [], [5, "m"], [["u"], "m"]):
        assert world.activity.answer(["machine", *rest]) is False
    for question in (
        None,
        "machine",
        {"machine": "u"},
        [],
        ["audience"],
        ["audience", "u"],
        ["audience", [None, ["u"]]],
    ):
        assert world.activity.answer(question) is False


async def test_peers_learn_of_a_new_user_interface_and_tell_it(world: World) -> None:
    daemon = world.connect("u", "session-scoped", session_id="s")
    alive(world, daemon)
    world.activity.answer(["audience", ["other"]])
    alive(world, daemon)
    assert len(world.told()) == 1
    world.activity.answer(["audience", ["other", "u"]])
    alive(world, daemon)
    alive(world, daemon)
    assert len(world.told()) == 2


async def test_many_new_user_interfaces_are_few_messages(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AUDIENCE_BATCH", 40)
    for n in range(100):
        world.connect(f"u{n % 50}")
        world.connect("u", "session-scoped", session_id="s")
    await world.idle()
    batches = [payload[1] for kind, payload in world.asked if payload[0] == "audience"]
    assert [len(batch) for batch in batches] == [40, 10]
    assert {account for batch in batches for account in batch} == {f"u{n}" for n in range(50)}
    world.connect("late")
    await world.idle()
    assert world.asked[-1] == ("activity", ["audience", ["late"]])


async def test_what_is_remembered_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACCOUNTS_MAX", 10)
    monkeypatch.setattr(module, "IDS_MAX", 10)
    for n in range(50):
        alive(world, world.connect(f"u{n}"), f"s{n}")
    client = world.connect("one")
    for n in range(50):
        alive(world, client, f"s{n}")
        await world.idle()
    assert len(world.activity._told) <= 10
    assert max(len(ids) for ids in world.activity._told.values()) <= 10
    assert len(world.activity._stored) <= 10
    assert max(len(keys) for keys in world.activity._reported.values()) <= 10


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.booleans()), max_size=30))
@settings(max_examples=60)
async def test_what_was_told_last_is_what_is(steps: list[tuple[str, bool, bool]]) -> None:
    """Whatever the order: the last ephemeral about a session says its present state, and none repeats the one
    before."""
    world = World()
    client = world.connect()
    now: dict[str, tuple[bool, bool]] = {}
    for sid, living, thinking in steps:
        if living:
            alive(world, client, sid, at=time.time() * 1000, thinking=thinking)
        else:
            world.send(client, "session-end", {"sid": sid, "time": NOW})
        now[sid] = (living, living and thinking)
    for sid, state in now.items():
        told = [(body["active"], body["thinking"]) for body in world.told() if body["id"] == sid]
        assert told[-1] == state
        assert all(one != two for one, two in itertools.pairwise(told))
