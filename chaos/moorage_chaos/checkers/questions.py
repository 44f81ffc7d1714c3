"""Questions of tasks: asked once, answered once, and the answer reaches the worker that asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def asked_once(expected: int) -> Checker:
    """Each of ``expected`` tasks appends one question, and its reader renders that once."""

    def check_asked_once(history: History) -> Iterator[Promise]:
        appended = Counter(p.value["session"] for p in select(history, "append", type="question"))
        rendered = Counter(note.value["reader"] for note in history.notes("event", type="question"))
        readers = {note.value["reader"] for note in history.notes("reader")}
        bad = sum(n != 1 for n in appended.values()) + sum(rendered[name] != 1 for name in readers)
        known = len(appended) >= expected and len(readers) >= expected
        yield Promise(
            "questions asked once", "0", bad, f"violations of {len(appended)}", held(not bad, known)
        )

    return check_asked_once


def answered(expected: int) -> Checker:
    """The first reply is taken, a second one refused, and the task's result carries the answer (``expect`` of its
    ``turn``)."""

    def check_answered(history: History) -> Iterator[Promise]:
        first = select(history, "reply", again=False)
        again = select(history, "reply", again=True)
        results = {note.value["task"]: note.value.get("result") for note in history.notes("task")}
        turns = [p for p in select(history, "turn") if p.phase == "ok"]
        good = sum(
            isinstance(result := results.get(turn.result["task"]), dict)
            and result.get("answer") == turn.value.get("expect")
            for turn in turns
        )
        taken = sum(p.phase == "ok" for p in first)
        refused = sum(p.phase == "fail" for p in again)
        bar = f"{expected}/{expected}"
        known = len(turns) >= expected
        yield Promise(
            "replies taken",
            bar,
            f"{taken}/{len(first)}",
            "replies",
            held(taken == len(first), known and bool(first)),
        )
        yield Promise(
            "second replies refused", bar, f"{refused}/{len(again)}", "replies",
            held(refused == len(again), bool(again)),
        )  # fmt: skip
        yield Promise(
            "answers that reached the worker", bar, f"{good}/{len(turns)}", "answers",
            held(good == len(turns), known),
        )  # fmt: skip

    return check_answered
