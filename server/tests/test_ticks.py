"""Looks of different periods share their moments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.ticks import next_tick

PERIODS = st.sampled_from([0.02, 0.1, 0.2, 0.25, 1.0])
TIMES = st.floats(0, 1e7)


@given(PERIODS, TIMES)
def test_the_next_tick_is_ahead_and_no_further_than_a_period(period: float, now: float) -> None:
    assert 0 < next_tick(period, now) - now <= 1.1 * period + 1e-6


@given(TIMES)
def test_a_longer_period_ticks_when_a_shorter_one_does(now: float) -> None:
    slow = next_tick(1.0, now)
    at = now
    while at < slow - 0.01:
        at = next_tick(0.1, at)
    assert abs(at - slow) < 1e-6


@given(PERIODS, st.integers(0, 10**6), st.floats(-0.09, 0.5))
def test_a_tick_that_is_early_or_late_is_followed_by_the_next_one(
    period: float, number: int, off: float
) -> None:
    assert abs(next_tick(period, (number + off) * period) - (number + 1) * period) < 1e-3 * period
