from __future__ import annotations

from moorage_chaos.checkers.ends import (
    all_ok,
    answered_by_target,
    ended_with,
    last_ok,
    success_rate,
    typed_ends,
)
from moorage_chaos.checkers.latency import after_loss, batch_duration, downs, faults, median_gap, not_before
from moorage_chaos.checkers.runs import at_most_once, delivered_honest, no_late_runs

from ._tiny import Tiny, only, verdicts


def test_all_ok() -> None:
    history = Tiny()
    first = history.call(0, 1, group="g")
    history.events[-1].value["answered"] = first
    assert only(history, all_ok("calls", 1, group="g")).verdict == "passed"
    assert only(history, all_ok("calls", 2, group="g")).verdict == "unknown"
    history.call(0, 1, "timeout", group="g")
    assert only(history, all_ok("calls", 2, group="g")).verdict == "failed"


def test_an_answer_to_another_call_is_no_success() -> None:
    history = Tiny()
    history.call(0, 1, result={"answered": 99})
    assert only(history, all_ok("calls", 1)).verdict == "failed"


def test_typed_ends() -> None:
    history = Tiny()
    history.call(0, 1)
    history.call(0, 1, "timeout", delivered="unknown")
    assert only(history, typed_ends()).verdict == "passed"
    assert only(history, typed_ends(allow=frozenset({"not_available"}))).verdict == "failed"
    history.call(0)
    assert only(history, typed_ends()).verdict == "failed"
    assert "unaccounted" in only(history, typed_ends()).why


def test_a_lost_caller_needs_a_recorded_loss() -> None:
    history = Tiny()
    history.call(0, 10, "caller_lost", caller="c")
    assert only(history, typed_ends(lost_callers=True)).verdict == "failed"
    history.see("down", 9, client="c", cause="cut")
    assert only(history, typed_ends(lost_callers=True)).verdict == "passed"
    assert only(history, typed_ends()).verdict == "failed"


def test_a_caller_without_a_connection_may_say_that_nothing_was_sent() -> None:
    history = Tiny()
    history.see("down", 1, client="c", cause="transport")
    history.call(5, 9, "caller_lost", caller="c", delivered="no")
    assert only(history, typed_ends(lost_callers=True)).verdict == "passed"
    history.call(20, 25, "caller_lost", caller="c", delivered="unknown")
    assert only(history, typed_ends(lost_callers=True)).verdict == "failed"


def test_ended_with_and_rate_and_last() -> None:
    history = Tiny()
    for end in ("ok", "not_available", "ok"):
        history.call(0, 1, end)
    assert only(history, ended_with("ends", "not_available", 1)).verdict == "failed"
    assert only(history, ended_with("ends", "ok", 4)).verdict == "unknown"
    assert only(history, success_rate("rate", 0.6, 3)).verdict == "passed"
    assert only(history, success_rate("rate", 0.7, 3)).verdict == "failed"
    assert only(history, last_ok("last", 1)).verdict == "passed"
    assert only(history, last_ok("last", 2)).verdict == "failed"


def test_answered_by_target() -> None:
    history = Tiny()
    history.call(0, 1, target="new", result={"by": "new"})
    assert only(history, answered_by_target("by")).verdict == "passed"
    history.call(0, 1, target="new", result={"by": "old"})
    assert only(history, answered_by_target("by")).verdict == "failed"


def test_at_most_once() -> None:
    history = Tiny()
    call = history.call(0, 1)
    history.call(0, 1, op="run", call=call)
    assert only(history, at_most_once()).verdict == "passed"
    history.call(0, 1, op="run", call=call)
    assert only(history, at_most_once()).verdict == "failed"


def test_a_run_of_a_call_nobody_made_is_a_violation() -> None:
    history = Tiny()
    history.call(0, 1, op="run", call=77)
    assert only(history, at_most_once()).verdict == "failed"


def test_delivered_is_compared_with_the_daemons_journal() -> None:
    history = Tiny()
    ran, not_run = (
        history.call(0, 5, "timeout", delivered="yes"),
        history.call(0, 5, "not_available", delivered="no"),
    )
    history.call(0, 5, "target_disconnected", delivered="unknown")
    history.call(1, 2, op="run", call=ran)
    assert only(history, delivered_honest()).verdict == "passed"
    history.call(1, 2, op="run", call=not_run)
    assert only(history, delivered_honest()).verdict == "failed"


def test_a_claim_of_delivery_without_a_run_is_a_lie() -> None:
    history = Tiny()
    history.call(0, 5)
    assert only(history, delivered_honest()).verdict == "failed"
    history.events[0].value["journal"] = False
    assert only(history, delivered_honest()).verdict == "passed"


def test_no_late_runs() -> None:
    history = Tiny()
    call = history.call(0, 10, "timeout", group="short")
    history.call(5, 20, op="run", call=call)
    assert only(history, no_late_runs(group="short")).verdict == "passed"
    history.call(11, 20, op="run", call=call)
    assert only(history, no_late_runs(group="short")).verdict == "failed"


def test_median_gap() -> None:
    history = Tiny()
    for slow, fast in ((2.0, 1.0), (2.2, 1.1), (9.0, 1.2)):
        history.call(0, slow, group="far")
        history.call(0, fast, group="near")
    assert only(history, median_gap("gap", 1.2, {"group": "far"}, {"group": "near"})).verdict == "passed"
    assert only(history, median_gap("gap", 1.0, {"group": "far"}, {"group": "near"})).verdict == "failed"
    assert only(history, median_gap("gap", 1.0, {"group": "x"}, {"group": "near"})).verdict == "unknown"


def test_batch_and_not_before() -> None:
    history = Tiny()
    history.call(0, 30, batch=1)
    history.call(10, 60, batch=1)
    assert only(history, batch_duration("batch", 60, "batch")).verdict == "passed"
    assert only(history, batch_duration("batch", 50, "batch")).verdict == "failed"
    assert only(history, not_before("end", 30)).verdict == "passed"
    assert only(history, not_before("end", 40)).verdict == "failed"


def test_after_a_fault_only_calls_in_flight_to_its_victim_count() -> None:
    history = Tiny()
    history.call(10, 40, op="fault", kind="kill", replica="r1", result={"tNs": int(20e6)})
    history.call(0, 45, "target_disconnected", targetReplica="r1")
    history.call(0, 900, "target_disconnected", targetReplica="r2")
    history.call(30, 900, "target_disconnected", targetReplica="r1")
    checker = after_loss("end", {1.0: 25.0}, faults("kill"))
    assert only(history, checker).measured == 25.0
    assert only(history, checker).verdict == "passed"
    assert only(history, after_loss("end", {1.0: 24.0}, faults("kill"))).verdict == "failed"
    assert only(history, after_loss("end", {1.0: 25.0}, faults("kill"), at_least=2)).verdict == "unknown"
    assert only(history, after_loss("end", {1.0: 25.0}, faults("pause"))).verdict == "unknown"


def test_after_a_client_went() -> None:
    history = Tiny()
    history.see("down", 20, client="d", cause="close")
    history.call(0, 45, "target_disconnected", target="d")
    assert verdicts(history, after_loss("end", {0.5: 30.0, 1.0: 20.0}, downs("close"))) == {
        "end p50": "passed",
        "end max": "failed",
    }
