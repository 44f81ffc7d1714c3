from __future__ import annotations

from typing import Any

import pytest

from moorage_chaos.report.compare import Change, compare
from moorage_chaos.results import as_json
from moorage_chaos.verdict import Promise, Verdict, row_result


def run_of(**rows: list[Promise]) -> dict[str, Any]:
    results = [row_result(name, 1.0, promises) for name, promises in rows.items()]
    return as_json(results, seed=1, driver="local", replicas=3, started_at="x", versions={})


def promise(measured: Any, verdict: Verdict = "passed", name: str = "end max") -> Promise:
    return Promise(name, "<= 10", measured, "ms", verdict)


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        (("passed", 5), ("passed", 5.5), False),
        (("passed", 5), ("failed", 50), True),
        (("passed", 5), ("unknown", None), True),
        (("unknown", 5), ("failed", 50), True),
        (("failed", 50), ("unknown", 50), False),
        (("failed", 50), ("passed", 5), False),
    ],
)
def test_worse_is_a_verdict_that_fell(
    before: tuple[Verdict, Any], after: tuple[Verdict, Any], worse: bool
) -> None:
    [change] = compare(run_of(a=[promise(before[1], before[0])]), run_of(a=[promise(after[1], after[0])]))
    assert change.worse is worse
    assert change.notable is (before[0] != after[0])


def test_a_figure_that_moved_is_notable_with_its_ratio() -> None:
    [change] = compare(run_of(a=[promise(5)]), run_of(a=[promise(7.5)]))
    assert change == Change("a", "end max", "ms", 5, 7.5, "passed", "passed")
    assert (change.ratio, change.notable, change.worse) == (1.5, True, False)


def test_promises_of_one_name_are_compared_in_their_order() -> None:
    old, new = [promise(1), promise(2)], [promise(1), promise(4)]
    assert [c.ratio for c in compare(run_of(a=old), run_of(a=new))] == [1.0, 2.0]
    assert [c.promise for c in compare(run_of(a=old), run_of(a=new))] == ["end max", "end max (2)"]


def test_rows_and_promises_that_only_one_run_has() -> None:
    changes = compare(run_of(gone=[promise(1)], a=[promise(1)]), run_of(a=[], new=[promise(9, "failed")]))
    assert [(c.row, c.promise, c.worse) for c in changes] == [
        ("gone", "the whole row", False),
        ("a", "end max", False),
        ("new", "the whole row", True),
    ]


def test_words_have_no_ratio() -> None:
    [change] = compare(run_of(a=[promise("70/70")]), run_of(a=[promise("69/70")]))
    assert change.ratio is None
