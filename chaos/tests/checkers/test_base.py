from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.base import Lags, judge_quantile, quantile, quantile_name
from moorage_chaos.checkers.latency import duration
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise

from ._tiny import Tiny, only


def spans(*ms: float) -> list[tuple[int, int]]:
    return [(0, int(m * 1e6)) for m in ms]


def test_a_checker_that_raises_is_unknown_and_the_others_are_judged() -> None:
    def broken(history: History) -> Iterator[Promise]:
        yield Promise("before", "", 1, "", "passed")
        raise KeyError("x")

    def silent(history: History) -> list[Promise]:
        return []

    def good(history: History) -> list[Promise]:
        return [Promise("good", "", 1, "", "passed")]

    found = judge(History(), (broken, silent, good))
    assert [promise.verdict for promise in found] == ["unknown", "unknown", "passed"]
    assert "KeyError" in found[0].why


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300), st.floats(0.01, 1.0))
def test_quantile_is_the_least_sample_that_covers_the_share(samples: list[float], q: float) -> None:
    value = quantile(samples, q)
    assert value in samples
    assert sum(s <= value for s in samples) >= q * len(samples) - 1e-9
    smaller = [s for s in samples if s < value]
    assert not smaller or sum(s <= max(smaller) for s in samples) < q * len(samples) + 1e-9


def test_a_p99_of_fewer_than_100_samples_is_a_maximum() -> None:
    assert quantile_name(0.99, 99) == ("max", 1.0)
    assert quantile_name(0.99, 100) == ("p99", 0.99)
    assert quantile_name(0.5, 3) == ("p50", 0.5)
    one_slow = judge_quantile(History(), "x", spans(*[1.0] * 98, 50.0), 0.99, 10)
    assert (one_slow.name, one_slow.verdict, one_slow.measured) == ("x max", "failed", 50.0)
    assert judge_quantile(History(), "x", spans(*[1.0] * 199, 50.0), 0.99, 10).verdict == "passed"


def test_no_samples_are_unknown() -> None:
    assert judge_quantile(History(), "x", [], 0.5, 10).verdict == "unknown"
    assert only(Tiny(), duration("call", 0.5, 10)).verdict == "unknown"


def test_only_the_harness_own_lag_excuses() -> None:
    history = Tiny()
    history.see("lag", 45.0, ms=42.0)
    assert judge_quantile(history, "x", spans(50.0), 1.0, 10).verdict == "unknown"
    assert judge_quantile(history, "x", spans(60.0), 1.0, 10).verdict == "failed"
    assert judge_quantile(history, "x", [(int(100e6), int(150e6))], 1.0, 10).verdict == "failed"
    assert judge_quantile(history, "x", spans(9.0), 1.0, 10).verdict == "passed"


def test_lags_of_several_loops_count_once() -> None:
    history = Tiny()
    for end, ms in ((100, 50), (80, 60), (300, 10)):  # 20-80 and 50-100 overlap
        history.see("lag", end, ms=ms)
    lags = Lags(history)
    found = [
        round(lags.overlap_ms(int(a * 1e6), int(b * 1e6)))
        for a, b in ((0, 400), (90, 295), (100, 290), (25, 26))
    ]
    assert found == [90, 15, 0, 1]
