from __future__ import annotations

from typing import Any

from moorage_chaos.checkers.gaps import gaps_said, told_of

from ._tiny import Tiny, verdicts

WRONG, COUNT = "gaps with the wrong reason, or a partial replay", "gaps with a wrong count"


def asked(expect: str, result: dict[str, Any] | None, **more: Any) -> Tiny:
    history = Tiny()
    end = {"end": "info"} if result is None else {}
    value = {"way": "sse", "id": "1-0", "case": "c", "expect": expect, **more}
    history.call(0, 1, op="resume-from", result=result or {"error": "…"}, **value, **end)
    return history


def said(reason: str | None, events: int = 0, missed: int | None = None) -> dict[str, Any]:
    end = "replay_gap" if reason else "replay_done"
    return {"end": end, "reason": reason, "events": events, "missed": missed}


def test_the_reason_must_be_right_and_no_event_may_come_with_it() -> None:
    for result, verdict in (
        (said("trimmed"), "passed"),
        (said("expired"), "failed"),
        (said("trimmed", events=2), "failed"),
        (said(None, events=2), "failed"),
        (None, "failed"),
    ):
        assert verdicts(asked("trimmed", result), gaps_said(1))[WRONG] == verdict


def test_without_a_gap_the_whole_rest_must_come() -> None:
    for result, verdict in (
        (said(None, events=3), "passed"),
        (said(None, events=2), "failed"),
        (said("trimmed"), "failed"),
    ):
        assert verdicts(asked("none", result, count=3), gaps_said(1))[WRONG] == verdict


def test_what_is_missed_is_counted_exactly() -> None:
    for missed, verdict in ((7, "passed"), (6, "failed"), (None, "failed")):
        found = verdicts(asked("trimmed", said("trimmed", missed=missed), missed=7), gaps_said(1))
        assert found[COUNT] == verdict
        assert found[WRONG] == "passed"


def test_too_few_are_unknown() -> None:
    assert (
        verdicts(asked("none", said(None), count=0), gaps_said(2))["resumes that were asked for"] == "unknown"
    )


def test_a_reader_must_be_told_and_find_a_turn() -> None:
    name = "readers told 'trimmed' that rebuilt from the turn"
    history = Tiny()
    assert verdicts(history, told_of("trimmed", 1)) == {name: "unknown"}
    history.see("reader", 1, reader="a", session="s")
    history.see("gap", 2, reader="a", reason="trimmed", turn=None)
    assert verdicts(history, told_of("trimmed", 1)) == {name: "failed"}
    history.see("gap", 3, reader="a", reason="trimmed", turn="running")
    assert verdicts(history, told_of("trimmed", 1)) == {name: "passed"}
