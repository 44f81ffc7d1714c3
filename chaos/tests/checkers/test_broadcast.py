from __future__ import annotations

from moorage_chaos.checkers.broadcast import exactly_once, first_copy_within, in_order

from ._tiny import Tiny, only, verdicts

ONCE = ("copies missing", "copies doubled", "copies delivered to others")


def emitted(end: str = "ok") -> tuple[Tiny, int]:
    history = Tiny()
    mark = history.call(0, 5, end, op="emit", expect=["a", "b"], via="r1", result={"seq": 1})
    return history, mark


def got(history: Tiny, mark: int, *clients: str, t: float = 6, seq: int = 1) -> None:
    for client in clients:
        history.see("received", t, client=client, event="update", mark=mark, seq=seq)


def test_each_expected_copy_once() -> None:
    history, mark = emitted()
    got(history, mark, "a", "b")
    assert set(verdicts(history, exactly_once(1)).values()) == {"passed"}


def test_missing_doubled_and_strange_copies() -> None:
    for clients, bad in ((("a",), ONCE[0]), (("a", "b", "b"), ONCE[1]), (("a", "b", "c"), ONCE[2])):
        history, mark = emitted()
        got(history, mark, *clients)
        found = verdicts(history, exactly_once(1))
        assert {name for name, verdict in found.items() if verdict == "failed"} == {bad}


def test_a_refused_emit_must_reach_nobody() -> None:
    history, mark = emitted("fail")
    assert verdicts(history, exactly_once(1))["emits accepted"] == "failed"
    assert verdicts(history, exactly_once(1, all_accepted=False))["copies missing"] == "passed"
    got(history, mark, "a")
    assert verdicts(history, exactly_once(1, all_accepted=False))["copies delivered to others"] == "failed"


def test_one_that_may_have_happened_may_reach_some_once() -> None:
    history, mark = emitted("info")
    got(history, mark, "a")
    assert verdicts(history, exactly_once(1, all_accepted=False))["copies missing"] == "passed"
    got(history, mark, "a")
    assert verdicts(history, exactly_once(1, all_accepted=False))["copies doubled"] == "failed"


def two() -> tuple[Tiny, int, int]:
    history = Tiny()
    history.call(0, 1, op="connect", client="a", scope="user-scoped")
    first = history.call(0, 5, op="emit", expect=["a"], via="r1", result={"seq": 1})
    second = history.call(6, 9, op="emit", expect=["a"], via="r1", result={"seq": 2})
    return history, first, second


def test_order() -> None:
    history, first, second = two()
    got(history, first, "a", seq=1)
    got(history, second, "a", seq=2)
    assert set(verdicts(history, in_order()).values()) == {"passed"}
    history, first, second = two()
    got(history, second, "a", seq=2)
    got(history, first, "a", seq=1)
    assert verdicts(history, in_order())["copies out of order"] == "failed"


def test_a_hole_in_seq_is_seen_unless_the_client_was_skipped() -> None:
    for expect, verdict in ((["a"], "failed"), (["b"], "passed")):
        history, first, second = two()
        third = history.call(10, 12, op="emit", expect=["a"], via="r1", result={"seq": 3})
        history.events[4].value["expect"] = expect
        got(history, first, "a", seq=1)
        got(history, third, "a", seq=3)
        assert second
        assert verdicts(history, in_order())["holes in the seq of user-scoped clients"] == verdict


def test_first_copy() -> None:
    history, mark = emitted()
    got(history, mark, "a", t=7)
    got(history, mark, "b", t=90)
    assert only(history, first_copy_within("local", 1.0, 8)).verdict == "passed"
    assert only(history, first_copy_within("local", 1.0, 6)).verdict == "failed"
