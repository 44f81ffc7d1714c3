"""Whose a session is: asked once by many, remembered, forgotten when it is deleted."""

from __future__ import annotations

import asyncio

import pytest

from moorage.errors import BackplaneError, BackplaneUnknown
from moorage.sockets import owners as owning
from moorage.sockets.owners import LOOK_UPS_MAX, Owners
from moorage.storage.state import Session
from moorage.storage.state_memory import MemoryState


class State(MemoryState):
    """Counts what it is asked; ``held``: no answer comes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = self.at_once = self.most = 0
        self.held = asyncio.Event()
        self.held.set()
        self.fails = False

    async def get_session(self, account: str, session_id: str) -> Session | None:
        self.asked += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        try:
            await self.held.wait()
            if self.fails:
                raise BackplaneUnknown
            return await super().get_session(account, session_id)
        finally:
            self.at_once -= 1


async def test_many_ask_once_and_a_yes_is_remembered() -> None:
    state = State()
    session, _ = await state.create_session("a", "t", None)
    now = 0.0
    owners = Owners(state, lambda: now)
    assert await asyncio.gather(*(owners.owns("a", session.id) for _ in range(50))) == [True] * 50
    assert await owners.owns("a", session.id)
    assert state.asked == 1
    assert not await owners.owns("b", session.id)
    assert not await owners.owns("a", "unknown")
    assert not await owners.owns("a", "unknown")
    assert state.asked == 4  # a no is not remembered: it may come to be
    now = owning.KEEP_S
    assert await owners.owns("a", session.id)
    assert state.asked == 5
    await state.delete_session("a", session.id)
    owners.forget(session.id)
    assert not await owners.owns("a", session.id)


async def test_a_failure_is_not_remembered_and_reaches_all_who_asked() -> None:
    state = State()
    session, _ = await state.create_session("a", "t", None)
    owners = Owners(state)
    state.fails = True
    answers = await asyncio.gather(*(owners.owns("a", session.id) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(answer, BackplaneError) for answer in answers)
    state.fails = False
    assert await owners.owns("a", session.id)


async def test_a_crowd_waits_for_its_turn_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    state = State()
    ids = [(await state.create_session("a", f"t{n}", None))[0].id for n in range(100)]
    owners = Owners(state)
    state.held.clear()
    crowd = [asyncio.create_task(owners.owns("a", id)) for id in ids]
    await asyncio.sleep(0.01)
    assert state.at_once == LOOK_UPS_MAX
    state.held.set()
    assert all(await asyncio.gather(*crowd))
    assert state.most == LOOK_UPS_MAX
    monkeypatch.setattr(owning, "BOUND_S", 0.01)
    state.held.clear()
    with pytest.raises(BackplaneError):
        await owners.owns("a", "other")
    state.held.set()


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owning, "KEEP_MAX", 10)
    state = State()
    owners = Owners(state)
    for n in range(30):
        session, _ = await state.create_session("a", f"t{n}", None)
        await owners.owns("a", session.id)
    assert len(owners._known) == 10
