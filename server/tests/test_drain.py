"""Drain: everybody is told, idle sockets go in waves, busy ones wait, and nothing outlasts the window."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from moorage import drain as module
from moorage.drain import Drain, DrainState


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time of the test's own, which passes while a drain waits: its waves are on time on any machine."""
    clock = SimpleNamespace(now=1000.0)
    yielded = asyncio.sleep

    async def sleep(seconds: float) -> None:
        await yielded(0)
        clock.now += seconds

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now, time=time.time))
    return clock


class Sockets:
    def __init__(self, *sids: str) -> None:
        self.open = set(sids)
        self.busy: set[str] = set()
        self.callers: set[str] = set()
        self.told: dict[str, dict[str, int]] = {}
        self.closed: list[str] = []

    def close(self, sid: str) -> None:
        self.closed.append(sid)
        self.open.discard(sid)

    def drain(self, window_s: float) -> Drain:
        return Drain(
            window_s,
            lambda: self.open,
            lambda sid: sid in self.busy,
            lambda sid: sid in self.callers,
            self.told.__setitem__,
            self.close,
        )


async def test_everybody_is_told_the_deadline_and_closed_within_the_window(clock: SimpleNamespace) -> None:
    sockets = Sockets(*(f"s{n}" for n in range(50)))
    everybody = set(sockets.open)
    drain = sockets.drain(0.3)
    await asyncio.wait_for(drain.run(), 5)
    assert clock.now < 1000.301
    assert set(sockets.told) == set(sockets.closed) == everybody
    assert len(sockets.closed) == len(everybody)
    assert all(abs(t["deadlineMs"] - time.time() * 1000) < 60_000 for t in sockets.told.values())
    assert drain.state is DrainState.DRAINED


async def test_busy_sockets_wait_until_they_are_done() -> None:
    sockets = Sockets("busy", "idle")
    sockets.busy.add("busy")
    drain = sockets.drain(30.0)
    drain._due = {}
    running = asyncio.create_task(drain.run())
    await asyncio.sleep(0)
    drain._due = {"busy": 0.0, "idle": 0.0}
    async with asyncio.timeout(5):
        while sockets.closed != ["idle"]:
            await asyncio.sleep(0.005)
    assert not running.done()
    sockets.busy.clear()
    await asyncio.wait_for(running, 5)
    assert sockets.closed == ["idle", "busy"]


async def test_what_is_still_busy_at_the_end_is_left_to_the_caller() -> None:
    sockets = Sockets("busy")
    sockets.busy.add("busy")
    await asyncio.wait_for(sockets.drain(0.05).run(), 5)
    assert sockets.closed == []


async def test_clients_that_leave_by_themselves_end_it_early() -> None:
    sockets = Sockets("a", "b")
    running = asyncio.create_task(sockets.drain(60.0).run())
    await asyncio.sleep(0)
    sockets.open.clear()
    await asyncio.wait_for(running, 5)
    assert sockets.closed == []


@pytest.mark.usefixtures("clock")
async def test_a_socket_that_comes_while_draining_is_told_too() -> None:
    sockets = Sockets("a")
    drain = sockets.drain(0.3)
    drain.connected("early")
    assert "early" not in sockets.told
    running = asyncio.create_task(drain.run())
    await asyncio.sleep(0)
    sockets.open.add("late")
    drain.connected("late")
    await asyncio.wait_for(running, 5)
    assert set(sockets.closed) == {"a", "late"} == set(sockets.told)
    drain.connected("too late")
    assert sockets.closed[-1] == "too late"


async def test_sockets_that_call_go_in_the_second_half(clock: SimpleNamespace) -> None:
    sockets = Sockets(*(f"s{n}" for n in range(20)))
    sockets.callers = {f"s{n}" for n in range(10)}
    drain = sockets.drain(20.0)
    running = asyncio.create_task(drain.run())
    await asyncio.sleep(0)
    due = {sid: at - clock.now for sid, at in drain._due.items()}
    assert all(10 <= due[sid] < 20 for sid in sockets.callers)
    assert min(due[sid] for sid in sockets.open - sockets.callers) >= 2
    sockets.open.clear()
    await asyncio.wait_for(running, 5)
