"""The parts without a network: pauses, kept results, signals, listeners, imports."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.client.listeners import SEEN_UPDATES, Listeners, Tasks
from moorage.client.runs import Results
from moorage.client.timing import Backoff, Signal


def test_pauses_double_to_two_seconds_with_full_jitter() -> None:
    ranges: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        ranges.append((low, high))
        return high

    backoff = Backoff(uniform)
    assert [backoff.next() for _ in range(6)] == [0.25, 0.5, 1.0, 2.0, 2.0, 2.0]
    assert {low for low, _ in ranges} == {0.0}
    backoff.reset()
    assert backoff.next() == 0.25


@given(
    count=st.integers(1, 4),
    steps=st.lists(st.tuples(st.sampled_from("abcdef"), st.floats(0, 5), st.booleans()), max_size=40),
)
def test_results_are_bounded_by_count_and_age_and_never_wrong(
    count: int, steps: list[tuple[str, float, bool]]
) -> None:
    now = 0.0
    results = Results(count, 10.0, clock=lambda: now)
    model: dict[str, tuple[float, int]] = {}
    for number, (key, pause, keep) in enumerate(steps):
        now += pause
        if keep:
            model.pop(key, None)
            model[key] = (now, number)
            results.keep(key, number)
        recent = list(model)[-count:]
        alive = {k for k in recent if model[k][0] + 10.0 > now}
        for k in "abcdef":
            assert results.get(k) == ((model[k][1],) if k in alive else None)
        assert len(results) == len(alive)


async def test_a_signal_wakes_when_the_condition_holds() -> None:
    signal, values = Signal(), [0]
    waiting = asyncio.create_task(signal.until(lambda: values[0] == 2, 10))
    for value in (1, 2):
        await asyncio.sleep(0)
        assert not waiting.done()
        values[0] = value
        signal.fire()
    await waiting
    with pytest.raises(TimeoutError):
        await signal.until(lambda: False, 0.01)
    assert signal._waiters == set()


@given(st.lists(st.integers(0, 5)))
def test_each_update_is_told_once(ids: list[int]) -> None:
    listeners, got = Listeners(Tasks()), []
    listeners.add("update", lambda payload: got.append(payload["id"]))
    for number in ids:
        listeners.tell("update", {"id": str(number)})
    assert got == list(dict.fromkeys(map(str, ids)))


def test_the_memory_for_updates_is_bounded_and_junk_passes() -> None:
    listeners, got = Listeners(Tasks()), []
    listeners.add("update", got.append)
    for number in range(3 * SEEN_UPDATES):
        listeners.tell("update", {"id": str(number)})
    assert len(listeners._seen) == SEEN_UPDATES
    junk: list[Any] = [None, 1, {}, {"id": 1}, {"id": []}]
    for payload in junk * 2:
        listeners.tell("update", payload)
    assert got[-10:] == junk * 2


def test_the_client_brings_no_server_along() -> None:
    code = "import sys, moorage.client; print(*sorted(m for m in sys.modules if m.startswith('moorage')))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    strangers = [m for m in out.stdout.split() if not m.startswith("moorage.client")]
    assert strangers == ["moorage", "moorage.errors"]
