from __future__ import annotations

import pytest

from moorage_chaos.verdict import EXIT_CODES, Promise, Verdict, merge, row_result


@pytest.mark.parametrize(
    ("verdicts", "merged"),
    [
        ([], "unknown"),
        (["passed"], "passed"),
        (["passed", "unknown"], "unknown"),
        (["unknown", "failed", "passed"], "failed"),
    ],
)
def test_failed_wins_over_unknown_over_passed(verdicts: list[Verdict], merged: Verdict) -> None:
    assert merge(verdicts) == merged


def test_exit_codes() -> None:
    assert EXIT_CODES == {"passed": 0, "failed": 1, "unknown": 3}


def test_the_reason_names_only_what_decided() -> None:
    promises = [
        Promise("a", "0", 0, "", "passed"),
        Promise("b", "<= 5", 9, "ms", "failed", "12 samples"),
        Promise("c", "1", None, "", "unknown"),
    ]
    result = row_result("row", 1.23456, promises)
    assert result.verdict == "failed"
    assert "b: 9 ms (bar <= 5), 12 samples" in result.reason
    assert "c:" not in result.reason
    row = result.as_json()
    assert row["seconds"] == 1.235
    assert row["promises"][0] == {"name": "a", "bar": "0", "measured": 0, "unit": "", "verdict": "passed"}


def test_a_passed_row_has_no_reason_and_an_empty_one_is_unknown() -> None:
    assert "reason" not in row_result("row", 0, [Promise("a", "0", 0, "", "passed")]).as_json()
    assert row_result("row", 0, []).verdict == "unknown"
