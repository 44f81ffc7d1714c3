from __future__ import annotations

from typing import Any

import pytest

from moorage_chaos.checkers.base import Checker
from moorage_chaos.checkers.outage import (
    announced_within,
    done_soon_after,
    done_while_away,
    ids_again_within,
    nobody_died,
    refused_while_away,
    under_way,
)

from ._tiny import Tiny, verdicts


def outage() -> Tiny:
    """Redis away from 1000 ms, asked back at 8000 and back at 9000; task t in session s reported at 500, and once
    more without an id at 2000."""
    history = Tiny()
    history.see("reader", 1, reader="a", session="s")
    history.call(100, 110, op="turn", session="s", variant="v", result={"task": "t"})
    append(history, 500, "500-0")
    history.call(1000, 1001, op="fault", kind="redis-kill", replica="redis", result={"tNs": 1_000_000_000})
    append(history, 2000, None)
    history.call(8000, 9000, op="undo", kind="redis-kill", replica="redis")
    history.see("redis-back", 9000, variant="v")
    return history


def append(history: Tiny, t: float, id: str | None, type: str = "item") -> None:
    history.call(t, t + 1, op="append", session="s", type=type, mark=str(t), result={"id": id})


def poll(history: Tiny, t: float, code: int, status: str | None = None, retry: str | None = None) -> None:
    result = {"code": code, "status": status, "retryAfter": retry}
    history.call(t, t + 5, op="poll", task="t", variant="v", result=result)


def worst(history: Tiny, checker: Checker) -> str:
    found = set(verdicts(history, checker).values())
    return next(verdict for verdict in ("failed", "unknown", "passed") if verdict in found)


def test_the_task_must_be_under_way() -> None:
    history = outage()
    assert worst(history, under_way(1)) == "passed"
    append(history, 900, "900-0", "task_result")
    assert worst(history, under_way(1)) == "unknown"


def test_done_while_away() -> None:
    history = outage()
    poll(history, 900, 200, "done")
    poll(history, 8500, 200, "done")
    assert worst(history, done_while_away(1, "v")) == "failed"
    poll(history, 5000, 200, "done")
    assert worst(history, done_while_away(1, "v")) == "passed"


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [((503, None, "1"), "passed"), ((503, None, None), "failed"), ((200, "running"), "failed")],
)
def test_refused_while_away(answer: Any, verdict: str) -> None:
    history = outage()
    assert worst(history, refused_while_away(1, "v")) == "unknown"
    poll(history, 5000, *answer)
    poll(history, 8500, 200, "running")
    assert worst(history, refused_while_away(1, "v")) == verdict


def test_done_soon_after() -> None:
    history = outage()
    poll(history, 9500, 200, "running")
    assert worst(history, done_soon_after(1, 2.0, "v")) == "failed"
    poll(history, 10_000, 200, "done")
    assert worst(history, done_soon_after(1, 2.0, "v")) == "passed"
    assert worst(history, done_soon_after(1, 0.5, "v")) == "failed"


def test_ids_again() -> None:
    history = outage()
    assert worst(history, ids_again_within(30, 1)) == "failed"
    append(history, 20_000, "20000-0")
    assert worst(history, ids_again_within(30, 1)) == "passed"
    assert worst(history, ids_again_within(5, 1)) == "failed"


@pytest.mark.parametrize("how", ["event", "gap"])
def test_the_hole_is_told(how: str) -> None:
    history = outage()
    assert worst(history, announced_within(30, 1)) == "failed"
    history.see(how, 12_000, reader="a", type="unlogged", id="12000-0", reason="epoch")
    assert worst(history, announced_within(30, 1)) == "passed"
    assert worst(history, announced_within(1, 1)) == "failed"


def test_without_a_hole_nothing_is_known() -> None:
    assert worst(Tiny(), announced_within(30, 1)) == "unknown"


def test_nobody_died() -> None:
    history = outage()
    history.see("death", 3000, replica="w", link="worker-1", code=-9, asked=True)
    assert worst(history, nobody_died()) == "passed"
    history.see("death", 3000, replica="w", link="worker-1", code=1, asked=False)
    assert worst(history, nobody_died()) == "failed"
