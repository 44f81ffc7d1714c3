from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.events.breaker import FAILURES_MAX, Breaker, BreakerState


def test_it_opens_after_failures_in_a_row_only() -> None:
    breaker = Breaker()
    for _ in range(5):
        assert not breaker.failure()
        assert not breaker.failure()
        assert not breaker.success()
    assert [breaker.failure() for _ in range(3)] == [False, False, True]
    assert breaker.state is BreakerState.OPEN


def test_one_probe_decides() -> None:
    breaker = Breaker()
    assert not breaker.probe()
    for _ in range(FAILURES_MAX):
        breaker.failure()
    assert breaker.probe()
    assert not breaker.probe()
    assert breaker.state is BreakerState.PROBING
    assert breaker.failure()
    assert breaker.probe()
    assert breaker.success()
    assert breaker.closed


@given(st.lists(st.sampled_from(["failure", "success", "probe"])))
def test_closed_means_fewer_failures_since_the_last_success(steps: list[str]) -> None:
    breaker, failures = Breaker(), 0
    for step in steps:
        was = breaker.state
        changed = getattr(breaker, step)()
        failures = failures + 1 if step == "failure" else 0 if step == "success" else failures
        assert breaker.closed == (failures < FAILURES_MAX)
        if step == "success":
            assert changed == (was is not BreakerState.CLOSED)
