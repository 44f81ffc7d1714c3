from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.report import junit
from moorage_chaos.results import as_json
from moorage_chaos.verdict import Promise, RowResult, row_result

VERDICTS = st.sampled_from(["passed", "failed", "unknown"])
TEXT = st.text(max_size=20)
PROMISES = st.builds(Promise, TEXT, TEXT, st.none() | st.integers() | TEXT, TEXT, VERDICTS, TEXT)


def run_of(results: list[RowResult]) -> dict[str, Any]:
    return as_json(
        results, seed=1, driver="local", replicas=3, started_at="2026-01-01T00:00:00+00:00", versions={}
    )


@given(st.lists(st.lists(PROMISES, max_size=4), max_size=3))
def test_it_is_xml_with_a_case_per_promise_whatever_the_rows_say(rows: list[list[Promise]]) -> None:
    results = [row_result(f"row-{n}", 2.5, promises) for n, promises in enumerate(rows)]
    suites = ElementTree.fromstring(junit(run_of(results)))
    assert len(suites) == len(rows)
    for suite, promises in zip(suites, rows, strict=True):
        kinds = [[child.tag for child in case if child.tag in ("failure", "error")] for case in suite]
        wanted = {"passed": [], "failed": ["failure"], "unknown": ["error"]}
        assert kinds == ([wanted[promise.verdict] for promise in promises] or [["error"]])
        names = [case.get("name") for case in suite]
        assert len(set(names)) == len(names)
        assert sum(float(case.get("time", "nan")) for case in suite) == 2.5


def test_promises_of_one_name_are_two_cases_and_the_figure_is_in_the_message() -> None:
    promises = [
        Promise("calls", "2/2", "1/2", "calls", "failed", "timeout x1"),
        Promise("calls", "1", 1, "", "passed"),
    ]
    suites = ElementTree.fromstring(junit(run_of([row_result("a-row", 1.0, promises)])))
    first, second = suites[0]
    assert (first.get("name"), second.get("name")) == ("calls", "calls (2)")
    assert first.get("classname") == "chaos.local.a-row"
    assert first[0].get("message") == "1/2 calls (bar 2/2), timeout x1"
    assert (suites.get("tests"), suites.get("failures")) == ("2", "1")
    run = run_of([row_result("a-row", 1.0, promises)]) | {"replay": "./run_all.py --seed 5"}
    assert "./run_all.py --seed 5 --only a-row" in str(ElementTree.fromstring(junit(run))[0][0][0].text)
