from __future__ import annotations

from typing import Any

from moorage_chaos.checkers.logged import (
    away_at_most,
    each_once,
    holes_told,
    log_order,
    number,
    overlapped,
    turns_ended,
)
from moorage_chaos.marks import mark_of

from ._tiny import Tiny, verdicts

BAD = {"events lost", "events doubled", "events nobody reported", "events out of order"}


def told(*, readers: tuple[str, ...] = ("a", "b"), events: int = 3) -> Tiny:
    """Events e1, e2 … logged in session s at 10, 20 … ms under the ids 10-0, 20-0 …; nothing rendered yet."""
    history = Tiny()
    for name in readers:
        history.see("reader", 1, reader=name, session="s", kind="python")
    for n in range(1, events + 1):
        report(history, n)
    return history


def report(history: Tiny, n: int, end: str | None = "ok", **result: Any) -> None:
    t1 = n * 10 + 1 if end else None
    full = {"id": f"{n * 10}-0", "seq": n, **result}
    history.call(n * 10, t1, end or "ok", op="append", session="s", type="item", mark=f"e{n}", result=full)


def render(history: Tiny, reader: str, *numbers: int, late: float = 0, **more: Any) -> None:
    for n in numbers:
        value = {"id": f"{n * 10}-0", "seq": n, "type": "item", "mark": f"e{n}", **more}
        history.see("event", n * 10 + 5 + late, reader=reader, **value)


def broken(history: Tiny, *, gaps: bool = False) -> set[str]:
    found = verdicts(history, each_once(3, gaps=gaps), log_order())
    return {name for name, verdict in found.items() if verdict != "passed"}


def test_all_rendered_once_in_order() -> None:
    history = told()
    render(history, "a", 1, 2, 3)
    render(history, "b", 1, 2, 3)
    assert broken(history) == set()


def test_each_violation_turns_its_own_promise_red() -> None:
    for numbers, bad in (
        ((1, 3), "events lost"),
        ((1, 2, 2, 3), "events doubled"),
        ((1, 2, 3, 9), "events nobody reported"),
        ((2, 1, 3), "events out of order"),
    ):
        history = told()
        render(history, "a", *numbers)
        render(history, "b", 1, 2, 3)
        assert broken(history) == {bad}


def test_the_same_report_under_two_ids_is_doubled() -> None:
    history = told(readers=("a",))
    report(history, 4, id="31-0", seq=4)
    render(history, "a", 1, 2, 3)
    render(history, "a", 4, id="31-0", mark="e3")
    assert broken(history) == {"events doubled"}


def test_one_that_may_have_happened_may_be_rendered_or_not() -> None:
    for shown in (False, True):
        history = told(readers=("a",))
        report(history, 4, end=None)
        render(history, "a", 1, 2, 3, *([4] if shown else []))
        assert broken(history) == set()


def test_without_an_id_it_may_be_missing_but_not_come_twice() -> None:
    history = told(readers=("a",))
    report(history, 4, id=None, seq=None)
    render(history, "a", 1, 2, 3)
    assert broken(history) == set()
    render(history, "a", 4, id=None, seq=None)
    assert broken(history) == set()
    render(history, "a", 4, id=None, seq=None)
    assert broken(history) == {"events doubled"}


def test_a_reader_wants_what_was_reported_while_it_was_there() -> None:
    history = told(readers=("a",), events=4)
    history.see("reader", 15, reader="late", session="s", kind="python")
    history.see("reader-closed", 535, reader="late")
    render(history, "a", 1, 2, 3, 4)
    render(history, "late", 2)
    assert broken(history) == {"events lost"}
    render(history, "late", 3)
    assert broken(history) == set()


def test_a_gap_excuses_only_what_it_was_told_in_time_for() -> None:
    for gap_at, rendered, bad in (
        (28, (1, 3), set()),  # told after e2 was reported, before e3 was rendered
        (12, (1, 3), {"events lost"}),  # told before e2 was reported
        (38, (1, 3), {"events lost"}),  # told after something later was rendered
    ):
        history = told(readers=("a",))
        render(history, "a", *rendered)
        history.see("gap", gap_at, reader="a", reason="trimmed", missed=1)
        assert broken(history, gaps=True) == bad
        assert broken(history) == {"events lost"}


def test_too_little_load_is_unknown() -> None:
    assert verdicts(Tiny(), each_once(1)) == {
        "events to be rendered": "unknown",
        "events lost": "unknown",
        "events doubled": "unknown",
        "events nobody reported": "unknown",
    }


def test_ids_compare_as_two_numbers() -> None:
    assert number("9-10") < number("10-2") < number("10-11")


def ended(status: str = "done", results: int = 1) -> Tiny:
    history = Tiny()
    history.see("reader", 1, reader="a", session="s", kind="python")
    history.call(2, 3, op="turn", session="s", result={"task": "t"})
    for _ in range(results):
        history.see("event", 9, reader="a", id="1-1", type="task_result", mark="task_result:t")
    history.see("task", 9, task="t", status=status)
    return history


def test_turns_end_with_one_result() -> None:
    names = "tasks done", "one task_result for each reader"
    assert verdicts(ended(), turns_ended(1)) == dict.fromkeys(names, "passed")
    assert verdicts(ended(), turns_ended(2))["tasks done"] == "unknown"
    assert verdicts(ended("running"), turns_ended(1))["tasks done"] == "failed"
    for count in (0, 2):
        assert verdicts(ended(results=count), turns_ended(1))[names[1]] == "failed"


def test_marks() -> None:
    assert mark_of("item", {"mark": "m"}) == "m"
    assert mark_of("task_result", {"taskId": "t"}) == "task_result:t"
    assert mark_of("question", {"questionId": "q"}) == "question:q"
    assert mark_of("unlogged", {"count": 1}) is mark_of("item", "text") is None


def holed() -> Tiny:
    """Two of four events got no id."""
    history = Tiny()
    history.see("reader", 1, reader="a", session="s", kind="python")
    for n in (1, 2, 3, 4):
        result = {"id": f"{n}-0", "seq": n} if n in (1, 4) else {"id": None, "seq": None}
        history.call(
            n * 10,
            n * 10 + 1,
            op="append",
            session="s",
            type="item",
            mark=f"e{n}",
            transient=False,
            result=result,
        )
    return history


def test_holes_are_told_by_their_number() -> None:
    name = "events without an id that nobody was told of"
    assert verdicts(Tiny(), holes_told(1)) == {name: "unknown"}
    for count, verdict in ((0, "failed"), (1, "failed"), (2, "passed")):
        history = holed()
        history.see("event", 50, reader="a", id="3-0", type="unlogged", mark=None, count=count)
        assert verdicts(history, holes_told(1)) == {name: verdict}
    history = holed()
    history.see("gap", 50, reader="a", reason="epoch")
    assert verdicts(history, holes_told(1)) == {name: "passed"}


def test_one_that_was_logged_after_all_is_no_hole() -> None:
    history = holed()
    history.see("event", 50, reader="a", id="3-0", type="unlogged", mark=None, count=1)
    history.see("event", 51, reader="a", id="2-5", type="item", mark="e2")
    assert set(verdicts(history, holes_told(1)).values()) == {"passed"}


def test_overlap_is_a_share_of_resumes() -> None:
    name = "bite: resumes whose replay overlapped live"
    history = Tiny()
    assert verdicts(history, overlapped(0.2)) == {name: "unknown"}
    history.see("resumed", 1, reader="a", kind="python", resumes=8, overlaps=1)
    assert verdicts(history, overlapped(0.2)) == {name: "unknown"}
    history.see("resumed", 1, reader="b", kind="python", resumes=2, overlaps=1)
    assert verdicts(history, overlapped(0.2)) == {name: "passed"}


def test_readers_must_come_back_and_soon() -> None:
    history = Tiny()
    for t, state in ((0, "live"), (100, "waiting"), (150, "connecting"), (600, "live")):
        history.see("reader-state", t, reader="a", state=state)
    assert set(verdicts(history, away_at_most(0.5, 1)).values()) == {"passed"}
    assert verdicts(history, away_at_most(0.4, 1))["away max"] == "failed"
    history.see("reader-state", 700, reader="b", state="waiting")
    assert verdicts(history, away_at_most(0.5, 1))["readers back"] == "failed"
