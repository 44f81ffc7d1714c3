from __future__ import annotations

from typing import ClassVar

import pytest

from moorage_chaos.history import History
from moorage_chaos.proof import judge, plan
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise, Verdict, row_result


class Row(Scenario):
    promise = "p"
    safe = True

    async def run(self, ctx: Context) -> None: ...

    def check(self, history: History) -> list[Promise]:
        return []


class Quick(Row):
    name = "quick"
    mutants: ClassVar[tuple[str, ...]] = ("hang-call",)


class Slow(Row):
    name = "slow"
    mutants: ClassVar[tuple[str, ...]] = ("hang-call", "drop-event")


class Unplayed(Row):
    name = "unplayed"
    bound_s = 5.0
    mutants: ClassVar[tuple[str, ...]] = ("hang-call", "ignore-fault")


ROWS = (Slow, Quick, Unplayed)
SECONDS = {"slow": 30.0, "quick": 1.0}


def shown(every_row: bool) -> list[tuple[str, str]]:
    names = ("hang-call", "drop-event", "ignore-fault", "no-grace")
    return [(name, row.name) for name, row in plan(ROWS, names, SECONDS, every_row=every_row)]


def test_the_cheapest_row_of_each_mutant_cheapest_first() -> None:
    assert shown(False) == [("hang-call", "quick"), ("ignore-fault", "unplayed"), ("drop-event", "slow")]


def test_every_row() -> None:
    assert [pair for pair in shown(True) if pair[0] == "hang-call"] == [
        ("hang-call", "quick"),
        ("hang-call", "unplayed"),
        ("hang-call", "slow"),
    ]


@pytest.mark.parametrize(
    ("mutant", "verdict", "control", "red"),
    [
        ("hang-call", "failed", "passed", True),
        ("hang-call", "failed", None, True),
        ("hang-call", "passed", "passed", False),
        ("hang-call", "unknown", "passed", False),
        ("hang-call", "failed", "failed", False),
        ("ignore-fault", "unknown", "passed", True),
        ("ignore-fault", "passed", "passed", False),
        ("ignore-fault", "failed", "passed", False),
    ],
)
def test_red_is_the_verdict_that_the_mutant_must_cause_on_a_row_that_passes_without(
    mutant: str, verdict: Verdict, control: Verdict | None, red: bool
) -> None:
    result = row_result("quick", 1.0, [Promise("calls", "5/5", "4/5", "calls", verdict)])
    proof = judge(mutant, result, control)
    assert proof.red is red
    assert bool(proof.why) is not red
    assert proof.by == (
        ["calls: 4/5 calls"] if verdict == ("unknown" if mutant == "ignore-fault" else "failed") else []
    )
