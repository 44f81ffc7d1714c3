"""Promises, verdicts, and how they merge: failed wins over unknown, unknown over passed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["passed", "failed", "unknown"]

EXIT_CODES: dict[Verdict, int] = {"passed": 0, "failed": 1, "unknown": 3}
"""Exit status of ``run_all.py``; 2 is a usage error (MATRIX, "Verdicts")."""


@dataclass(frozen=True)
class Promise:
    """One thing a row promises, what was measured, and what that means.

    ``bar`` is what had to be reached, in words or figures (``"<= 50"``, ``"70/70"``); ``measured`` a number,
    a string or None; ``why`` says what is behind a verdict that is not ``passed``.
    """

    name: str
    bar: str
    measured: Any
    unit: str
    verdict: Verdict
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        row = {
            "name": self.name,
            "bar": self.bar,
            "measured": self.measured,
            "unit": self.unit,
            "verdict": self.verdict,
        }
        return {**row, "why": self.why} if self.why else row


def promise_from(row: dict[str, Any]) -> Promise:
    """The inverse of ``Promise.as_json``. Raises KeyError."""
    return Promise(row["name"], row["bar"], row["measured"], row["unit"], row["verdict"], row.get("why", ""))


def merge(verdicts: Iterable[Verdict]) -> Verdict:
    """Failed wins, then unknown; of nothing at all nothing is known."""
    seen = set(verdicts)
    if "failed" in seen:
        return "failed"
    return "unknown" if "unknown" in seen or not seen else "passed"


@dataclass
class RowResult:
    """One row of the report."""

    row: str
    verdict: Verdict
    seconds: float
    promises: list[Promise] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"ok": 0, "failed": 0, "unknown": 0})
    mutants: list[str] = field(default_factory=list)
    reason: str = ""

    def as_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "row": self.row,
            "verdict": self.verdict,
            "seconds": round(self.seconds, 3),
            "promises": [promise.as_json() for promise in self.promises],
            "counts": self.counts,
            "mutants": self.mutants,
        }
        return {**row, "reason": self.reason} if self.reason else row


def row_result(
    row: str,
    seconds: float,
    promises: list[Promise],
    *,
    counts: dict[str, int] | None = None,
    mutants: Iterable[str] = (),
) -> RowResult:
    """Judge a row by its promises; the reason names each that did not pass."""
    verdict = merge(promise.verdict for promise in promises)
    reason = "; ".join(
        f"{promise.name}: {promise.measured} {promise.unit} (bar {promise.bar})".replace("  ", " ")
        + (f", {promise.why}" if promise.why else "")
        for promise in promises
        if promise.verdict == verdict
    )
    return RowResult(
        row,
        verdict,
        seconds,
        promises,
        counts or {"ok": 0, "failed": 0, "unknown": 0},
        list(mutants),
        "" if verdict == "passed" else reason or "the row made no promise",
    )
