"""Everybody is due once, at its time, whoever else is; nothing is left behind. Time by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.sockets import heartbeats
from moorage.sockets.heartbeats import Heartbeats


class Clock:
    """A loop of timers only."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Any:
        self.timers.append((when, callback))
        return self

    def turn(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [timer for timer in self.timers if timer[0] <= end]:
            timer = min(due, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1]()
        self.now = end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(heartbeats.asyncio, "get_running_loop", lambda: made)
    return made


class Client:
    def __init__(self, clock: Clock, beats: Heartbeats, again: float | None = None) -> None:
        self.clock, self.beats, self.again = clock, beats, again
        self.times: list[float] = []

    def due(self) -> None:
        self.times.append(self.clock.now)
        if self.again is not None:
            self.beats.wait(self, self.again)


def test_everybody_is_due_at_its_time(clock: Clock) -> None:
    beats = Heartbeats(15.0)
    clients = []
    for n in range(50):
        clients.append((clock.now, Client(clock, beats)))
        beats.wait(clients[-1][1], 15.0)
        clock.turn(0.037 * n % 0.5)
    assert len(beats) == 50
    clock.turn(16.0)
    for began, client in clients:
        assert len(client.times) == 1
        assert 14.98 <= client.times[0] - began <= 15.0 + 2 * heartbeats.SLOT_MAX_S
    assert len(beats) == 0
    assert clock.timers == []


def test_who_is_forgotten_is_never_due(clock: Clock) -> None:
    beats = Heartbeats(15.0)
    here, gone = Client(clock, beats), Client(clock, beats)
    beats.wait(here, 15.0)
    beats.forget(gone, beats.wait(gone, 15.0))
    beats.forget(gone, 1)
    clock.turn(30.0)
    assert (len(here.times), gone.times) == (1, [])


def test_after_a_stall_nobody_is_left_out(clock: Clock) -> None:
    beats = Heartbeats(1.0)
    clients = [Client(clock, beats) for _ in range(10)]
    for n, client in enumerate(clients):
        beats.wait(client, 1.0 + n)
    clock.now += 100.0
    clock.turn(0.1)
    assert all(len(client.times) == 1 for client in clients)


def test_one_that_raises_ends_nobody_else(clock: Clock) -> None:
    class Broken(Client):
        def due(self) -> None:
            raise ValueError

    beats = Heartbeats(1.0)
    clients = [Broken(clock, beats), Client(clock, beats, again=1.0)]
    for client in clients:
        beats.wait(client, 1.0)
    clock.turn(5.0)
    assert len(clients[1].times) >= 4


@given(st.lists(st.tuples(st.floats(0.01, 3.0), st.floats(0, 1.0), st.booleans()), max_size=30))
def test_any_order_of_waiting_and_forgetting(steps: list[tuple[float, float, bool]]) -> None:
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heartbeats.asyncio, "get_running_loop", lambda: clock)
        beats = Heartbeats(0.3)
        waiting = []
        for delay, pause, forget in steps:
            client = Client(clock, beats)
            slot = beats.wait(client, delay)
            if forget:
                beats.forget(client, slot)
            else:
                waiting.append((clock.now + delay, client))
            clock.turn(pause)
        clock.turn(4.0)
        assert len(beats) == 0
        for when, client in waiting:
            assert len(client.times) == 1
            assert when - 0.003 <= client.times[0] <= when + 0.05


async def test_with_a_real_loop() -> None:
    beats = Heartbeats(0.15)
    done = asyncio.Event()

    class Last:
        def due(self) -> None:
            done.set()

    beats.wait(Last(), 0.05)
    await asyncio.wait_for(done.wait(), 5)
    assert len(beats) == 0
