"""Who may speak for a task, by a clock of the test's own."""

from __future__ import annotations

import asyncio

import pytest

from moorage.errors import BackplaneUnavailable
from moorage.storage.tasks import Begun, Hold, Record
from moorage.storage.tasks_memory import MemoryTasks
from moorage.tasks.attempts import Attempt, Attempts, Superseded

TAKEOVER_S = 4.0


class Store(MemoryTasks):
    """``away``: does not answer. ``holds``: what a beat says."""

    def __init__(self) -> None:
        super().__init__()
        self.away, self.beats, self.says = False, 0, Hold.KEPT

    async def beat(self, worker: str, handlers: object, held: object) -> list[Hold]:  # type: ignore[override]
        self.beats += 1
        if self.away:
            raise BackplaneUnavailable
        return [self.says] * len(held)  # type: ignore[arg-type]


class Bench:
    def __init__(self, together: bool) -> None:
        self.now, self.store = 0.0, Store()
        self.attempts = Attempts(
            self.store,
            "w",
            ["h"],
            heartbeat_s=1.0,
            takeover_s=TAKEOVER_S,
            together=together,
            clock=self.clock,
        )
        self.attempt = self.attempts.add(Begun(Record("t", "a", "s", "h", b"1", attempts=1), False, "e"), 0.0)

    def clock(self) -> float:
        return self.now


async def test_a_fresh_hold_needs_no_question() -> None:
    bench = Bench(False)
    bench.now = TAKEOVER_S * 0.7
    await bench.attempts.confirm(bench.attempt)
    assert bench.store.beats == 0


async def test_a_doubtful_hold_is_confirmed_first() -> None:
    bench = Bench(False)
    bench.now = TAKEOVER_S
    await asyncio.gather(*(bench.attempts.confirm(bench.attempt) for _ in range(5)))
    assert bench.store.beats == 1
    bench.now += TAKEOVER_S * 0.7
    await bench.attempts.confirm(bench.attempt)
    assert bench.store.beats == 1


async def test_a_lost_hold_may_not_speak() -> None:
    bench = Bench(False)
    bench.now, bench.store.says = TAKEOVER_S, Hold.LOST
    with pytest.raises(Superseded):
        await bench.attempts.confirm(bench.attempt)
    assert bench.attempt.interrupted.is_set()


async def test_what_ended_may_not_speak() -> None:
    bench = Bench(False)
    bench.attempts.remove(bench.attempt)
    with pytest.raises(Superseded):
        await bench.attempts.confirm(bench.attempt)


async def test_apart_from_the_log_it_waits_for_its_state() -> None:
    bench = Bench(False)
    bench.now, bench.store.away = TAKEOVER_S, True
    waiting = asyncio.create_task(bench.attempts.confirm(bench.attempt))
    while bench.store.beats < 2:
        await asyncio.sleep(0.01)
    assert not waiting.done()
    bench.store.away = False
    await waiting


async def test_together_with_the_log_it_goes_on() -> None:
    bench = Bench(True)
    bench.now, bench.store.away = TAKEOVER_S, True
    await bench.attempts.confirm(bench.attempt)
    await bench.attempts.confirm(bench.attempt)
    assert bench.store.beats == 1  # just now it was away
    bench.now += 1
    bench.store.away, bench.store.says = False, Hold.LOST
    with pytest.raises(Superseded):
        await bench.attempts.confirm(bench.attempt)


async def test_a_beat_counts_from_when_it_was_sent() -> None:
    bench = Bench(False)

    class Slow(Store):
        async def beat(self, *args: object) -> list[Hold]:  # type: ignore[override]
            bench.now += 3.0
            return [Hold.KEPT]

    attempts = Attempts(
        Slow(), "w", ["h"], heartbeat_s=1.0, takeover_s=TAKEOVER_S, together=False, clock=bench.clock
    )
    attempt: Attempt = attempts.add(Begun(Record("t", "a", "s", "h", b"1"), False, "e"), 0.0)
    bench.now = 10.0
    await attempts.beat()
    assert attempt.confirmed == 10.0
