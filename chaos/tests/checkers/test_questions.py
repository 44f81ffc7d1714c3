from __future__ import annotations

from moorage_chaos.checkers.questions import answered, asked_once

from ._tiny import Tiny, verdicts

ONCE = "questions asked once"
TAKEN, REFUSED, REACHED = "replies taken", "second replies refused", "answers that reached the worker"


def asked(*, appended: int = 1, rendered: int = 1) -> Tiny:
    history = Tiny()
    history.see("reader", 1, reader="a", session="s")
    for _ in range(appended):
        history.call(2, 3, op="append", session="s", type="question")
    for _ in range(rendered):
        history.see("event", 4, reader="a", type="question")
    return history


def test_asked_once_and_rendered_once() -> None:
    assert verdicts(asked(), asked_once(1)) == {ONCE: "passed"}
    assert verdicts(asked(), asked_once(2)) == {ONCE: "unknown"}
    for history in (asked(appended=2), asked(rendered=0), asked(rendered=2)):
        assert verdicts(history, asked_once(1)) == {ONCE: "failed"}


def replied(first: str = "ok", second: str = "fail", answer: str = "yes") -> Tiny:
    history = Tiny()
    history.call(1, 2, op="turn", session="s", expect="yes", result={"task": "t"})
    for again, end in ((False, first), (True, second)):
        history.call(3, 4, end, op="reply", again=again, delivered=None)
    history.see("task", 5, task="t", status="done", result={"answer": answer})
    return history


def test_the_first_reply_is_taken_the_second_refused_and_the_worker_has_it() -> None:
    assert verdicts(replied(), answered(1)) == dict.fromkeys((TAKEN, REFUSED, REACHED), "passed")
    for history, bad in (
        (replied(first="fail"), TAKEN),
        (replied(second="ok"), REFUSED),
        (replied(answer="no"), REACHED),
    ):
        found = verdicts(history, answered(1))
        assert [name for name, verdict in found.items() if verdict == "failed"] == [bad]
