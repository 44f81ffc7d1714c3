from __future__ import annotations

import pytest

from moorage_chaos.checkers import ALWAYS, judge
from moorage_chaos.history import History
from moorage_chaos.scenarios import discover
from moorage_chaos.scenarios.base import Scenario
from moorage_chaos.verdict import merge

ROWS = discover()

MATRIX = [
    "steady-state",
    "stream-pressure",
    "fire-and-forget",
    "register-race-timing",
    "reconnect-no-ack",
    "rapid-sessions",
    "high-concurrency",
    "nested-session-flow",
    "cross-replica-3",
    "ttl-free",
    "brief-disconnect",
    "long-disconnect",
    "reconnect-storm",
    "broadcast",
    "presence",
    "zombie-socket",
    "hostile-client",
    "slow-consumer",
    "cancel-and-deadline",
    "pod-kill-mid-rpc",
    "dead-daemon",
    "bystander",
    "rolling-deploy",
    "total-outage",
    "cascading",
    "freeze-replica",
    "network-loss",
    "partition",
    "poison-entry",
    "redis-freeze",
    "redis-restart",
    "redis-restart-kept",
    "subscription-kill",
    "resume",
    "resume-1000",
    "redis-outage-mid-task",
    "worker-takeover",
    "trimmed-gap",
    "question",
    "two-tabs",
    "apply",
    "redis-toggle",
    "drift",
    "node-drain",
    "operator-kill",
    "bad-spec",
    "scale",
]


def test_the_rows_of_the_matrix_are_there() -> None:
    assert set(MATRIX) <= set(ROWS)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_that_did_nothing_is_not_passed(row: type[Scenario]) -> None:
    """No row may pass on an empty history: each has a bite condition, or a count that must be reached."""
    history = History()
    promises = row().check(history) + judge(history, ALWAYS)
    assert merge(promise.verdict for promise in promises) != "passed"
    assert merge(promise.verdict for promise in promises if promise.name.startswith("bite")) != "failed"


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_file_is_named_after_the_row(row: type[Scenario]) -> None:
    assert row.__module__.rsplit(".", 1)[-1] == row.name.replace("-", "_")
    assert row.safe == (not row.needs), "what kills, freezes or cuts says what it needs of the driver"
