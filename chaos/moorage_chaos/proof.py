"""Plays every broken server against the row that must notice it: proof that the checkers can fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from moorage_chaos.display import Display
from moorage_chaos.mutants import NAMES
from moorage_chaos.mutants.registry import UNBITTEN
from moorage_chaos.report.data import MUTANTS_FILE
from moorage_chaos.report.data import mutants as earlier
from moorage_chaos.results import FORMAT, write_whole
from moorage_chaos.runner import Runner, Selection
from moorage_chaos.scenarios.base import Scenario
from moorage_chaos.verdict import RowResult, Verdict

NOT_TRIED = "not tried"


@dataclass(frozen=True)
class Proof:
    """One broken server on one row."""

    mutant: str
    row: str
    verdict: str
    """Of the row; ``not tried`` if the time was over."""
    red: bool
    """The row noticed, and passes without the mutant."""
    seconds: float = 0.0
    by: list[str] = field(default_factory=list)
    """Promises that noticed, with what was measured."""
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        row = {
            "mutant": self.mutant,
            "sentence": NAMES[self.mutant],
            "row": self.row,
            "verdict": self.verdict,
            "red": self.red,
            "seconds": round(self.seconds, 3),
            "by": self.by,
        }
        return {**row, "why": self.why} if self.why else row


def plan(
    rows: Sequence[type[Scenario]], names: Iterable[str], seconds: dict[str, float], *, every_row: bool
) -> list[tuple[str, type[Scenario]]]:
    """What to play, cheapest first: for each mutant the cheapest row that names it, or all of them. ``seconds``: what
    a row took; one that is not there counts with its bound. A mutant that none of ``rows`` names is left out."""
    found = []
    for name in names:
        fitting = sorted(
            (row for row in rows if name in row.mutants), key=lambda row: seconds.get(row.name, row.bound_s)
        )
        found += [(name, row) for row in (fitting if every_row else fitting[:1])]
    return sorted(found, key=lambda pair: seconds.get(pair[1].name, pair[1].bound_s))


def judge(name: str, result: RowResult, control: Verdict | None) -> Proof:
    """``control``: the row's verdict without the mutant; None if it was not played."""
    wanted: Verdict = "unknown" if name in UNBITTEN else "failed"
    by = [f"{p.name}: {p.measured} {p.unit}".rstrip() for p in result.promises if p.verdict == wanted]
    why = ""
    if control is not None and control != "passed":
        why = f"the row is {control} without the mutant, too: this proves nothing"
    elif result.verdict != wanted:
        why = f"the row should be {wanted}: {result.reason}".rstrip(": ")
    return Proof(name, result.row, result.verdict, not why, result.seconds, by, why)


def prove(
    selection: Selection,
    names: Sequence[str],
    control: dict[str, Any],
    console: Console,
    *,
    every_row: bool,
    budget_s: float,
) -> dict[str, Any]:
    """Play all, one after the other; the object of ``mutants.json`` (format 1), which is written after each of them.

    ``control`` is the ``--json`` object of a run without mutants. After ``budget_s`` seconds no more are begun. What
    an earlier call found for other mutants is kept.
    """
    verdicts = {row["row"]: row["verdict"] for row in control["rows"]}
    seconds = {row["row"]: row["seconds"] for row in control["rows"] if row["seconds"]}
    plans = plan(selection.rows, names, seconds, every_row=every_row)
    mine = {(name, row.name) for name, row in plans}
    before = earlier(selection.folder) or {"mutants": []}
    kept = [p for p in before["mutants"] if (p["mutant"], p["row"]) not in mine and p["mutant"] in NAMES]
    began = time.monotonic()
    found: list[Proof] = []
    stopped = False
    for number, (name, row) in enumerate(plans, 1):
        if stopped or time.monotonic() - began > budget_s:
            found.append(Proof(name, row.name, NOT_TRIED, False, why="the time was over"))
            continue
        console.print(f"{number}/{len(plans)} {name} on {row.name}", highlight=False)
        result, stopped = _play(selection, name, row, console)
        found.append(judge(name, result, verdicts.get(row.name)))
        _write(selection, kept, found)
    return _write(selection, kept, found)


def _play(selection: Selection, name: str, row: type[Scenario], console: Console) -> tuple[RowResult, bool]:
    folder: Path = selection.folder / "mutants" / name
    with Display(console, 1) as display:
        runner = Runner(replace(selection, rows=[row], mutant=name, folder=folder), display)
        [result] = asyncio.run(runner.run())
    return result, runner.interrupted


def _write(selection: Selection, kept: list[dict[str, Any]], found: list[Proof]) -> dict[str, Any]:
    rows = sorted([*kept, *(proof.as_json() for proof in found)], key=lambda row: (row["mutant"], row["row"]))
    made = {
        "format": FORMAT,
        "seed": selection.seed,
        "driver": selection.driver,
        "red": sum(row["red"] for row in rows),
        "mutants": rows,
    }
    write_whole(selection.folder / MUTANTS_FILE, orjson.dumps(made, option=orjson.OPT_INDENT_2) + b"\n")
    return made
