from __future__ import annotations

from moorage_chaos.checkers.takeover import (
    interrupted_steps,
    one_result_each,
    only_latest_attempt,
    taken_over,
)

from ._tiny import Tiny, verdicts

TAKEN, SAME = "tasks taken over", "steps that ran again under their key"


def killed(*, ended: bool = False, taker: str = "w2", key: str = "step-1/x") -> Tiny:
    """Worker w1 begins step-1 at 10 ms (and ends it), dies at 20; w2 reports at 30."""
    history = Tiny()
    step(history, 10, "w1", "step-1/x", 1)
    if ended:
        step(history, 12, "w1", "step-1/x", 1)
    history.call(
        20, 21, op="fault", kind="kill", replica="w1", result={"tNs": 20_000_000, "proof": {"exitCode": -9}}
    )
    if taker:
        step(history, 30, taker, key, 2)
    return history


def step(history: Tiny, t: float, worker: str, key: str, attempt: int) -> None:
    result = {"id": f"{int(t)}-0", "seq": int(t)}
    value = {
        "session": "s",
        "type": "step",
        "key": key,
        "worker": worker,
        "attempt": attempt,
        "mark": f"{worker}{t}",
    }
    history.call(t, t + 1, op="append", result=result, **value)


def test_a_kill_must_meet_a_step_under_way() -> None:
    bite = "bite: steps under way at a kill"
    assert verdicts(killed(), interrupted_steps(1)) == {bite: "passed"}
    assert verdicts(killed(ended=True), interrupted_steps(1)) == {bite: "unknown"}


def test_another_worker_runs_the_step_again_under_its_key() -> None:
    found = verdicts(killed(), taken_over(1.0))
    assert set(found.values()) == {"passed"}
    found = verdicts(killed(taker=""), taken_over(1.0))
    assert (found[TAKEN], found[SAME]) == ("failed", "failed")
    found = verdicts(killed(key="step-9/x"), taken_over(1.0))
    assert (found[TAKEN], found[SAME]) == ("passed", "failed")
    assert "failed" in verdicts(killed(), taken_over(0.005)).values()


def test_one_result() -> None:
    name = "sessions with one task_result"
    history = Tiny()
    history.call(1, 2, op="append", session="s", type="task_result", result={"id": "1-0"})
    assert verdicts(history, one_result_each(1)) == {name: "passed"}
    assert verdicts(history, one_result_each(2)) == {name: "unknown"}
    history.call(3, 4, op="append", session="s", type="task_result", result={"id": "3-0"})
    assert verdicts(history, one_result_each(1)) == {name: "failed"}


def test_an_attempt_that_is_over_says_no_more() -> None:
    name = "events of an attempt that was over"
    history = killed()
    assert verdicts(history, only_latest_attempt()) == {name: "passed"}
    step(history, 40, "w1", "step-1/x", 1)
    assert verdicts(history, only_latest_attempt()) == {name: "failed"}
