from __future__ import annotations

import asyncio
from typing import Any

import pytest

from moorage.errors import BackplaneUnavailable, PresenceUnknown
from moorage.sockets.clients import Client, Clients
from moorage.sockets.presence import Presence


class Peers:
    """Other replicas: their answers, whether all answered, or what asking raises."""

    def __init__(self, answers: list[Any], complete: bool = True, error: Exception | None = None) -> None:
        self.answers, self.complete, self.error = answers, complete, error
        self.asked: list[tuple[str, Any, float]] = []

    async def ask(self, kind: str, payload: Any, timeout_s: float) -> tuple[list[Any], bool]:
        self.asked.append((kind, payload, timeout_s))
        if self.error is not None:
            raise self.error
        return self.answers, self.complete


def clients(*made: Client) -> Clients:
    found = Clients()
    for number, client in enumerate(made):
        client.sid = str(number)
        found.add(client)
    return found


@pytest.mark.parametrize(
    ("local", "answers", "complete", "expected"),
    [
        ([], [], True, False),
        ([Client("u", "user-scoped", app_state="active")], [], True, True),
        ([Client("u", "user-scoped", app_state="background")], [], True, False),
        ([Client("u", "user-scoped")], [], True, False),
        ([Client("other", "user-scoped", app_state="active")], [], True, False),
        ([Client("u", "session-scoped", session_id="s", app_state="active")], [], True, False),
        ([Client("u", "machine-scoped", machine_id="m", app_state="active")], [], True, False),
        ([], [False, True], True, True),
        ([], [True], False, True),
        ([], [False, None, "junk", {"active": True}, 1], True, False),
        ([], [False], False, None),
        ([], [], False, None),
        ([Client("u", "user-scoped", app_state="active")], [], False, True),
    ],
)
async def test_cases(local: list[Client], answers: list[Any], complete: bool, expected: bool | None) -> None:
    presence = Presence(clients(*local), Peers(answers, complete).ask)
    if expected is None:
        with pytest.raises(PresenceUnknown):
            await presence.has_active_ui_client("u")
    else:
        assert await presence.has_active_ui_client("u") is expected


async def test_nobody_is_asked_when_the_answer_is_here() -> None:
    peers = Peers([False])
    presence = Presence(clients(Client("u", "user-scoped", app_state="active")), peers.ask, timeout_ms=2000)
    assert await presence.has_active_ui_client("u")
    assert peers.asked == []
    await presence.has_active_ui_client("other")
    assert [(kind, payload) for kind, payload, _ in peers.asked] == [("presence", "other")]
    assert 0 < peers.asked[0][2] < 2.0


@pytest.mark.parametrize("error", [BackplaneUnavailable(), TimeoutError()])
async def test_a_question_that_cannot_be_asked_is_unknown(error: Exception) -> None:
    with pytest.raises(PresenceUnknown):
        await Presence(Clients(), Peers([], error=error).ask).has_active_ui_client("u")


async def test_the_answer_comes_within_the_bound_even_if_asking_does_not_end() -> None:
    async def never(kind: str, payload: Any, timeout_s: float) -> tuple[list[Any], bool]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(PresenceUnknown):
        await Presence(Clients(), never, timeout_ms=50).has_active_ui_client("u")


async def test_no_flap_while_a_newer_socket_lives() -> None:
    old, new = Client("u", "user-scoped", app_state="active"), Client("u", "user-scoped", app_state="active")
    here = clients(old, new)
    presence = Presence(here)
    here.remove(old.sid)
    assert await presence.has_active_ui_client("u") is True
    here.remove(new.sid)
    assert await presence.has_active_ui_client("u") is False


def test_a_peers_question_is_answered_from_here_only() -> None:
    peers = Peers([True])
    presence = Presence(clients(Client("u", "user-scoped", app_state="active")), peers.ask)
    assert presence.answer("u") is True
    for question in ("other", None, 5, ["u"], {"u": 1}):
        assert presence.answer(question) is False
    assert peers.asked == []
