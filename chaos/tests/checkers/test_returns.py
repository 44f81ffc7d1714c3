from __future__ import annotations

from moorage_chaos.checkers.returns import absences, all_recovered, missed_meanwhile

from ._tiny import Tiny, only


def cut_and_back() -> Tiny:
    """Client "a" is away from 10 to 20."""
    history = Tiny()
    history.call(0, 1, op="connect", client="a")
    history.see("down", 10, client="a")
    history.call(15, 20, op="connect", client="a")
    return history


def test_recovered_each_time() -> None:
    history = Tiny()
    history.see("return", 1, client="a", recovered=True)
    assert only(history, all_recovered(1)).verdict == "passed"
    assert only(history, all_recovered(2)).verdict == "unknown"
    history.see("return", 2, client="a", recovered=False)
    assert only(history, all_recovered(2)).verdict == "failed"


def test_from_the_loss_to_the_next_connect() -> None:
    assert absences(cut_and_back()) == {"a": [(10_000_000, 20_000_000)]}


def test_only_what_was_sent_and_taken_meanwhile_was_missed() -> None:
    for t0, t1, end, missed in ((11, 12, "ok", 1), (5, 9, "ok", 0), (18, 25, "ok", 0), (11, 12, "fail", 0)):
        history = cut_and_back()
        history.call(t0, t1, end, op="emit", expect=["a", "b"])
        promise = only(history, missed_meanwhile(1))
        assert promise.measured == missed
        assert promise.verdict == ("passed" if missed else "unknown")
