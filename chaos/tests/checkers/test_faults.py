from __future__ import annotations

import pytest

from moorage_chaos.checkers.attacks import answered_as_expected, no_replica_exits
from moorage_chaos.checkers.bite import crossing, fault_happened, in_flight, killed, reached
from moorage_chaos.checkers.bystander import not_slower
from moorage_chaos.checkers.cancel import cancel_told
from moorage_chaos.checkers.drain import drain_pace, only_lost_at_cuts
from moorage_chaos.checkers.figures import at_least, at_most
from moorage_chaos.checkers.latency import faults
from moorage_chaos.checkers.presence import answers_right, no_flap
from moorage_chaos.checkers.recovery import after_registration, back_within, notes, peak_rate, serving
from moorage_chaos.checkers.storm import outside_cuts_ok, typed_soon_after_cut

from ._tiny import Tiny, only, verdicts


def kill(history: Tiny, t: float, replica: str, code: int = -9) -> None:
    result = {"tNs": int(t * 1e6), "proof": {"exitCode": code}}
    history.call(t, t + 1, op="fault", kind="kill", replica=replica, result=result)


def test_a_bite_condition_is_never_failed() -> None:
    assert only(Tiny(), crossing(1)).verdict == "unknown"
    assert only(Tiny(), fault_happened("kill", 1)).verdict == "unknown"
    assert only(Tiny(), in_flight("kill", 1)).verdict == "unknown"
    assert only(Tiny(), reached("load", 5, "x", lambda history: 4)).verdict == "unknown"
    assert only(Tiny(), reached("load", 5, "x", lambda history: 5)).verdict == "passed"


def test_crossing_goes_by_the_ids_of_both_sides() -> None:
    history = Tiny()
    history.call(0, 1, callerReplica="r1", targetReplica="r2", result={"byReplica": "r1"})
    assert only(history, crossing(1)).verdict == "unknown"
    history.call(0, 1, callerReplica="r1", result={"byReplica": "r2"})
    history.call(0, 1, "timeout", callerReplica="r1", targetReplica="r2")
    assert only(history, crossing(2)).verdict == "passed"


def test_a_kill_needs_the_exit_code() -> None:
    history = Tiny()
    kill(history, 10, "r1", 0)
    assert only(history, fault_happened("kill", 1, killed)).verdict == "unknown"
    kill(history, 20, "r1")
    assert only(history, fault_happened("kill", 1, killed)).verdict == "passed"


def test_in_flight_at_every_fault() -> None:
    history = Tiny()
    kill(history, 10, "r1")
    history.call(5, 15, targetReplica="r1")
    assert only(history, in_flight("kill", 1)).verdict == "passed"
    kill(history, 20, "r1")
    assert only(history, in_flight("kill", 1)).verdict == "unknown"


def test_bystander() -> None:
    history = Tiny()
    for _ in range(10):
        history.call(0, 60, group="before")
    history.call(0, 119, group="during")
    checker = not_slower(2, 100, {"group": "before"}, {"group": "during"})
    assert only(history, checker).verdict == "passed"
    history.call(0, 121, group="during")
    assert only(history, checker).verdict == "failed"
    assert only(Tiny(), checker).verdict == "unknown"


def back(history: Tiny, t: float, client: str, replica: str) -> None:
    history.call(t - 1, t, op="register", client=client, replica=replica, method="m")


def test_serving_follows_registrations_and_losses() -> None:
    history = Tiny()
    back(history, 10, "our-daemon-1", "r1")
    back(history, 10, "daemon-1", "r1")
    history.see("down", 20, client="our-daemon-1", replica="r1")
    back(history, 30, "our-daemon-1", "r2")
    assert serving(history, int(15e6), "our-daemon") == {"our-daemon-1"}
    assert serving(history, int(25e6), "our-daemon") == set()
    assert serving(history, int(31e6), "our-daemon") == {"our-daemon-1"}


def test_a_handover_is_no_gap() -> None:
    history = Tiny()
    back(history, 10, "our-daemon-1", "r1")
    back(history, 20, "our-daemon-1", "r2")
    history.see("down", 30, client="our-daemon-1", replica="r1")
    assert serving(history, int(40e6), "our-daemon") == {"our-daemon-1"}


def test_back_within() -> None:
    history = Tiny()
    kill(history, 100, "r1")
    history.see("down", 101, client="our-daemon-1", replica="r1")
    back(history, 1600, "our-daemon-1", "r2")
    found = verdicts(history, back_within("back", "our-daemon", 1, {1.0: 1, 2.0: 1}, faults("kill")))
    assert found == {"back after 1 s": "failed", "back after 2 s": "passed"}
    assert only(history, back_within("back", "our-daemon", 1, {1.0: 1}, notes("x"))).verdict == "unknown"


def test_after_registration() -> None:
    history = Tiny()
    back(history, 1, "d", "r1")
    history.call(10, 1530, method="m")
    back(history, 1501, "d", "r1")
    assert only(history, after_registration("answer", 30)).verdict == "passed"
    assert only(history, after_registration("answer", 29)).verdict == "failed"


def test_rates() -> None:
    history = Tiny()
    for t in (0, 100, 900, 2000):
        history.call(t, t + 1, op="connect", client=f"idle-{t}", kind="idle")
    assert only(history, peak_rate("rate", 3, 1000)).verdict == "passed"
    assert only(history, peak_rate("rate", 2, 1000)).verdict == "failed"


@pytest.mark.parametrize(("spread", "verdict"), [(4000, "passed"), (900, "failed")])
def test_drain_pace(spread: float, verdict: str) -> None:
    history = Tiny()
    steps = [{"tNs": 0, "proof": {"goneNs": int(4e9)}}]
    history.call(0, 4000, op="fault", kind="roll", replica="all", result={"proof": {"steps": steps}})
    for i in range(100):
        history.call(i * spread / 100, i * spread / 100 + 1, op="connect", client=f"idle-{i}")
    assert only(history, drain_pace("idle", 4000)).verdict == verdict


def test_plain_calls_may_be_lost_at_a_cut_only() -> None:
    history = Tiny()
    history.call(0, 50, "target_disconnected", caller="c", target="d")
    assert only(history, only_lost_at_cuts("lost")).verdict == "failed"
    history.see("down", 40, client="d")
    assert only(history, only_lost_at_cuts("lost")).verdict == "passed"


def test_storm() -> None:
    history = Tiny()
    history.see("cut", 100, client="d")
    history.see("down", 111, client="d")
    history.call(50, 110, "target_disconnected", group="fail")
    history.call(200, 210, group="fail")
    assert only(history, outside_cuts_ok("d", group="fail")).verdict == "passed"
    assert only(history, outside_cuts_ok("d", all_of_them=True, group="fail")).verdict == "failed"
    assert set(verdicts(history, typed_soon_after_cut("d", 20, group="fail")).values()) == {"passed"}
    history.call(60, 130, "target_disconnected", group="fail")
    assert "failed" in verdicts(history, typed_soon_after_cut("d", 20, group="fail")).values()
    history.call(120, 130, "not_available", group="fail")
    assert only(history, outside_cuts_ok("d", group="fail")).verdict == "failed"


def test_cancel() -> None:
    history = Tiny()
    call = history.call(0, 60, "cancelled", kind="cancel", group="g")
    history.call(5, 70, "info", op="run", daemon="d", requestId="r", call=call, result={"cancelled": True})
    history.see("cancel", 50, group="g")
    assert "failed" in verdicts(history, cancel_told("cancel", 1, 100)).values()
    history.see("cancelled", 70, daemon="d", requestId="r")
    assert set(verdicts(history, cancel_told("cancel", 1, 100)).values()) == {"passed"}
    assert "failed" in verdicts(history, cancel_told("cancel", 1, 10)).values()


def test_presence() -> None:
    history = Tiny()
    history.call(0, 1, op="presence", case="a", expected=True, link="l", result={"active": True})
    assert only(history, answers_right(1)).verdict == "passed"
    assert only(history, no_flap("a", 1)).verdict == "passed"
    history.call(0, 1, op="presence", case="a", expected=True, link="m", result={"active": None})
    assert only(history, answers_right(1)).verdict == "failed"
    assert only(history, no_flap("a", 1)).verdict == "failed"


def test_attacks() -> None:
    history = Tiny()
    history.call(0, 1, "invalid_params", op="attack", what="x", expected="invalid_params", delivered="no")
    history.call(0, 1, op="attack", what="y", expected="any refusal", result={"got": "closed"})
    assert only(history, answered_as_expected(2)).verdict == "passed"
    history.call(0, 1, op="attack", what="z", expected="any refusal", result={"got": "accepted"})
    assert only(history, answered_as_expected(2)).verdict == "failed"


def test_replicas_must_survive() -> None:
    history = Tiny()
    history.see("replicas", 0, when="before", ids=["r1"])
    assert only(history, no_replica_exits()).verdict == "unknown"
    history.see("replicas", 9, when="after", ids=["r1"])
    assert only(history, no_replica_exits()).verdict == "passed"
    history.see("death", 5, replica="r1", link="replica-1", code=1)
    assert only(history, no_replica_exits()).verdict == "failed"


def test_figures() -> None:
    assert only(Tiny(), at_most("x", 5, "MB", lambda history: 5)).verdict == "passed"
    assert only(Tiny(), at_most("x", 5, "MB", lambda history: 6)).verdict == "failed"
    assert only(Tiny(), at_least("x", 5, "MB", lambda history: 4)).verdict == "failed"
    assert (
        only(Tiny(), at_most("x", 5, "MB", lambda history: history.notes("gone")[-1].t)).verdict == "unknown"
    )
