"""What a run shows while it runs, and the table at its end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from moorage_chaos.report.compare import Change
from moorage_chaos.verdict import RowResult

STYLES = {"passed": "green", "failed": "bold red", "unknown": "yellow"}
REFRESH_PER_S = 4
PLAIN_WIDTH = 140
"""Columns where the output is no terminal (a CI log): nothing in the table needs to wrap."""


def console() -> Console:
    """For standard output."""
    made = Console()
    return made if made.is_terminal else Console(width=PLAIN_WIDTH)


@dataclass
class _Now:
    since: float
    text: str = ""


class Display:
    """Live on a terminal, else one plain line for each row."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._now: dict[tuple[str, str], _Now] = {}
        self._systems: dict[str, str] = {}
        self._done = 0
        self._began = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._render,
                console=self._console,
                refresh_per_second=REFRESH_PER_S,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def note(self, text: str) -> None:
        self._console.print(Text(text), highlight=False)

    def heard(self, lane: str, message: dict[str, Any]) -> None:
        """A message of a lane, as :mod:`moorage_chaos.lane` describes it."""
        match message.get("event"):
            case "system":
                self._systems[lane] = message["text"]
            case "row":
                self._now[lane, message["row"]] = _Now(time.monotonic())
                if self._live is None:
                    self.note(f"{self._clock()} {lane:<5} {message['row']} …")
            case "progress" if (now := self._now.get((lane, message["row"]))) is not None:
                now.text = message["text"]
            case "halt":
                self.note(f"{lane} stopped: {message['reason']}")

    def finished(self, lane: str, result: RowResult) -> None:
        self._now.pop((lane, result.row), None)
        self._done += 1
        line = Text(f"{self._clock()} ")
        line.append(f"{result.verdict:<8}", STYLES[result.verdict])
        line.append(f"{result.row:<22} {result.seconds:6.1f} s")
        if result.reason:
            line.append(f"  {result.reason}", "dim")
        self._console.print(line, highlight=False, soft_wrap=True)

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began:6.1f}s"

    def _render(self) -> Group:
        lines = [Text(f"{self._clock()} {self._done}/{self._total} rows", "bold")]
        for lane, text in self._systems.items():
            if text:
                lines.append(Text(f"  {lane:<5} {text}", "dim"))
        for (lane, row), now in self._now.items():
            lines.append(Text(f"  {lane:<5} {row:<22} {time.monotonic() - now.since:5.1f} s  {now.text}"))
        return Group(*lines)


def table(results: Sequence[RowResult]) -> Table:
    """Every promise with its number."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("row", no_wrap=True)
    made.add_column("promise", overflow="fold")
    made.add_column("bar", overflow="fold")
    made.add_column("measured", justify="right", no_wrap=True)
    made.add_column("unit", overflow="fold")
    made.add_column("verdict", no_wrap=True)
    for result in results:
        first = result.row
        for promise in result.promises:
            shown = f"{promise.measured:.4g}" if isinstance(promise.measured, float) else promise.measured
            cells = [
                Text(str(c)) for c in (first, promise.name, promise.bar, "–" if shown is None else shown)
            ]
            made.add_row(*cells, Text(promise.unit), Text(promise.verdict, STYLES[promise.verdict]))
            first = ""
        if not result.promises:
            made.add_row(Text(first), "–", "–", "–", "", Text(result.verdict, STYLES[result.verdict]))
    return made


def summary(results: Sequence[RowResult]) -> Text:
    """Counts of verdicts, and each row that did not pass with its reason."""
    text = Text()
    for verdict, style in STYLES.items():
        count = sum(result.verdict == verdict for result in results)
        text.append(f"{count} {verdict}  ", style if count else "dim")
    for result in results:
        if result.verdict != "passed":
            text.append(f"\n{result.verdict} {result.row}: ", STYLES[result.verdict])
            text.append(result.reason)
    return text


def comparison(changes: Sequence[Change]) -> Table:
    """What changed notably between two runs; a last line says how much did not."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("row", "promise", "before", "after", "unit", "ratio", "verdict"):
        made.add_column(name, overflow="fold")
    notable = [change for change in changes if change.notable]
    for change in notable:
        before, after = change.verdict_before or "not there", change.verdict_after or "not there"
        verdict = after if before == after else f"{before} -> {after}"
        style = "bold red" if change.worse else STYLES.get(after, "dim")
        figures = ["–" if value is None else str(value) for value in (change.before, change.after)]
        ratio = f"{change.ratio:.2f}" if change.ratio is not None else "–"
        cells = [Text(text) for text in (change.row, change.promise, *figures, change.unit, ratio)]
        made.add_row(*cells, Text(verdict, style))
    made.add_row(Text(f"{len(changes) - len(notable)} promises as before", "dim"))
    return made


def proofs(found: dict[str, Any]) -> Table:
    """The table of ``run_all.py mutants``."""
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("mutant", "row", "noticed", "row's verdict", "by"):
        made.add_column(name, overflow="fold")
    for row in found["mutants"]:
        noticed = Text("yes", "green") if row["red"] else Text("NO", "bold red")
        by = "; ".join(row["by"][:2]) + (f" and {len(row['by']) - 2} more" if len(row["by"]) > 2 else "")
        cells = [Text(row["mutant"]), Text(row["row"]), noticed, Text(row["verdict"])]
        made.add_row(*cells, Text(row.get("why") or by))
    made.add_row(Text(f"{found['red']} of {len(found['mutants'])} noticed", "bold"))
    return made
