from __future__ import annotations

import pytest

from moorage_chaos.checkers.cutoff import agreed_within

from ._tiny import Tiny, only


def cut_and_healed(agreed: float | None) -> Tiny:
    history = Tiny()
    history.see("cut-off", 100, kind="redis", daemon="daemon-1")
    history.call(4000, 4010, op="undo", kind="link-blackhole", replica="replica-1:redis")
    if agreed is not None:
        history.see("agreed", agreed, kind="redis")
    history.call(9000, 9010, op="undo", kind="link-blackhole", replica="replica-1")
    return history


@pytest.mark.parametrize(
    ("agreed", "verdict"), [(5000, "passed"), (6010, "passed"), (6011, "failed"), (None, "failed")]
)
def test_it_counts_from_the_undo_of_its_own_cut(agreed: float | None, verdict: str) -> None:
    promise = only(cut_and_healed(agreed), agreed_within("redis", 2000))
    assert promise.verdict == verdict
    if agreed is not None:
        assert promise.measured == agreed - 4010


def test_nothing_is_known_of_a_cut_that_was_not() -> None:
    assert only(Tiny(), agreed_within("redis", 2000)).verdict == "unknown"
    assert only(cut_and_healed(5000), agreed_within("both", 2000)).verdict == "unknown"
