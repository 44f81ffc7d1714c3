from __future__ import annotations

from pathlib import Path

from moorage_chaos.report import markdown, write
from moorage_chaos.results import as_json
from moorage_chaos.verdict import Promise, row_result


def run() -> dict[str, object]:
    rows = [
        row_result("good", 1, [Promise("calls", "1/1", "1/1", "calls", "passed")], mutants=["hang-call"]),
        row_result("bad", 1, [Promise("a|b", "0", 3, "", "failed", "two\nlines")]),
    ]
    return as_json(rows, seed=7, driver="local", replicas=3, started_at="2026-01-01", versions={}, mutant="x")


def test_every_row_and_promise_is_there() -> None:
    page = markdown(run())
    assert page.startswith("# Chaos matrix: 1 passed, 1 failed, 0 unknown")
    assert "## bad: failed" in page
    assert "## good: " not in page
    assert "Turned red by: hang-call" in page
    assert "a\\|b" in page
    assert "two lines" in page
    assert "broken server `x`" in page


def test_write(tmp_path: Path) -> None:
    write(run(), tmp_path)
    assert (tmp_path / "summary.md").read_text() == markdown(run())
