"""Formats that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.results import as_json, overall, result_from, write_json
from moorage_chaos.verdict import Promise, RowResult

VERDICTS = st.sampled_from(["passed", "failed", "unknown"])
TEXT = st.text(max_size=20)
PROMISES = st.builds(Promise, TEXT, TEXT, st.none() | st.integers() | TEXT, TEXT, VERDICTS, TEXT)
RESULTS = st.builds(
    RowResult,
    TEXT,
    VERDICTS,
    st.integers(0, 1000).map(float),
    st.lists(PROMISES, max_size=3),
    st.fixed_dictionaries(
        {"ok": st.integers(0, 9), "failed": st.integers(0, 9), "unknown": st.integers(0, 9)}
    ),
    st.lists(TEXT, max_size=2),
    TEXT,
)


def run_of(results: list[RowResult]) -> dict[str, Any]:
    return as_json(
        results, seed=1, driver="local", replicas=3, started_at="2026-01-01T00:00:00+00:00", versions={}
    )


@given(RESULTS)
def test_a_result_survives_the_way_from_lane_to_runner(result: RowResult) -> None:
    assert result_from(result.as_json()) == result


def test_failed_wins_over_unknown_and_nothing_is_unknown() -> None:
    row = {verdict: RowResult(verdict, verdict, 0.0) for verdict in ("passed", "failed", "unknown")}  # type: ignore[arg-type]
    assert overall([row["passed"]]) == "passed"
    assert overall([row["passed"], row["unknown"]]) == "unknown"
    assert overall(list(row.values())) == "failed"
    assert overall([]) == "unknown"


def test_json_is_written_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "run.json"
    write_json(run_of([]), path)
    assert path.read_bytes().startswith(b"{")
    assert [p.name for p in path.parent.iterdir()] == ["run.json"]
