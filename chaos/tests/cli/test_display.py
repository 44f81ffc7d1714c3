"""What is shown, on a terminal and elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from moorage_chaos.display import Display, summary, table
from moorage_chaos.verdict import Promise, RowResult

FAILED = RowResult(
    "bystander",
    "failed",
    1.0,
    [Promise("p99 [ms]", "<= 100", 250.123, "ms", "failed")],
    reason="p99 [ms]: 250",
)


def shown(*items: object, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, width=200, force_terminal=terminal)
    for item in items:
        console.print(item)
    return file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_tells_of_each_row(terminal: bool) -> None:
    file = io.StringIO()
    with Display(Console(file=file, width=200, force_terminal=terminal), 2) as display:
        display.heard("main", {"event": "system", "text": "building 3 replicas"})
        display.heard("main", {"event": "row", "row": "bystander"})
        display.heard("main", {"event": "progress", "row": "bystander", "text": "kill 3 of 20"})
        display.heard("main", {"event": "progress", "row": "never-began", "text": "x"})
        display.heard("main", {"event": "beat"})
        live = shown(display._render())
        display.finished("main", FAILED)
        display.heard("main", {"event": "halt", "reason": "[no markup]"})
    assert "0/2 rows" in live
    assert "kill 3 of 20" in live
    text = file.getvalue()
    assert "bystander" in text
    assert "p99 [ms]: 250" in text
    assert "[no markup]" in text


def test_the_table_holds_every_promise_with_its_number() -> None:
    text = shown(table([FAILED, RowResult("apply", "unknown", 0.0, reason="not played")]))
    for word in ("bystander", "p99 [ms]", "<= 100", "250.1", "failed", "apply", "unknown"):
        assert word in text


def test_the_summary_gives_the_reason_of_each_that_did_not_pass() -> None:
    text = shown(summary([FAILED, RowResult("fine", "passed", 0.1)]))
    assert "1 passed" in text
    assert "1 failed" in text
    assert "failed bystander: p99 [ms]: 250" in text
    assert "fine:" not in text
