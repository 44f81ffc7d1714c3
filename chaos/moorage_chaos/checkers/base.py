"""What all checkers share: selecting operations, quantiles, and a judge that survives a broken checker."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from moorage_chaos.history import Event, History, Pair
from moorage_chaos.verdict import Promise, Verdict

Checker = Callable[[History], Iterable[Promise]]

P99_MIN_SAMPLES = 100
"""A p99 of fewer samples is called a maximum, and is one (MATRIX, "Verdicts")."""


def judge(history: History, checkers: Iterable[Checker]) -> list[Promise]:
    """All promises of all checkers. One that raises, or promises nothing, gives a promise that is unknown."""
    promises: list[Promise] = []
    for checker in checkers:
        name = getattr(checker, "__qualname__", repr(checker)).split(".")[0]
        try:
            made = list(checker(history))
        except Exception as error:
            made = [
                Promise(name, "the checker runs", None, "", "unknown", f"{type(error).__name__}: {error}")
            ]
        promises += made or [Promise(name, "the checker promises something", None, "", "unknown")]
    return promises


def matches(pair: Pair, match: dict[str, Any]) -> bool:
    """True if the invoke's value carries all of ``match``; a set or tuple there means "one of"."""
    for key, wanted in match.items():
        have = pair.value.get(key)
        if have not in wanted if isinstance(wanted, (set, frozenset, tuple)) else have != wanted:
            return False
    return True


def select(history: History, op: str = "call", **match: Any) -> list[Pair]:
    """Operations whose invoke carries all of ``match``."""
    return history.pairs(op, lambda pair: matches(pair, match))


def held(good: bool, known: bool = True) -> Verdict:
    """The verdict of a condition: unknown if nothing could be measured."""
    return ("passed" if good else "failed") if known else "unknown"


def quantile(samples: Sequence[float], q: float) -> float:
    """The smallest sample that at least ``q`` of all samples do not exceed (nearest rank). ValueError if
    empty.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def quantile_name(q: float, count: int) -> tuple[str, float]:
    """``("p99", 0.99)``; with fewer than 100 samples a p99 becomes ``("max", 1.0)``."""
    if q >= 0.99 and count < P99_MIN_SAMPLES:
        return "max", 1.0
    return f"p{q * 100:g}", q


def lag_overlap_ms(lags: Iterable[Event], start: int, end: int) -> float:
    """How many milliseconds of [start, end] (monotonic ns) the harness's own loop did not turn."""
    total = 0.0
    for lag in lags:
        begin = lag.t - int(lag.value["ms"] * 1e6)
        total += max(0, min(end, lag.t) - max(start, begin)) / 1e6
    return total


class Lags:
    """The same for many spans; of several loops of the harness, the time in which at least one stood still."""

    def __init__(self, history: History) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        for begin, end in sorted(
            (note.t - int(note.value["ms"] * 1e6), note.t) for note in history.notes("lag")
        ):
            if self._ends and begin <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._begins.append(begin)
                self._ends.append(end)

    def overlap_ms(self, start: int, end: int) -> float:
        total = 0
        for at in range(bisect_right(self._ends, start), len(self._ends)):
            if self._begins[at] >= end:
                break
            total += min(end, self._ends[at]) - max(start, self._begins[at])
        return total / 1e6


def judge_quantile(
    history: History, name: str, spans: Sequence[tuple[int, int]], q: float, bar_ms: float
) -> Promise:
    """Judge a quantile of durations (spans of monotonic ns) by an upper bar.

    Failed even without the time in which the harness's own loop stood still: failed. Failed only with it:
    unknown, for then the harness has measured itself.
    """
    label, q = ("max", 1.0) if q >= 1 else quantile_name(q, len(spans))
    title = f"{name} {label}"
    bar = f"<= {bar_ms:g}"
    if not spans:
        return Promise(title, bar, None, "ms", "unknown", "no samples")
    raw = [(end - start) / 1e6 for start, end in spans]
    measured = quantile(raw, q)
    note = f"{len(spans)} samples"
    if measured <= bar_ms:
        return Promise(title, bar, round(measured, 3), "ms", "passed", note)
    lags = Lags(history)
    cleared = [ms - lags.overlap_ms(*span) for ms, span in zip(raw, spans, strict=True)]
    without = quantile(cleared, q)
    if without <= bar_ms:
        why = f"{note}; {without:.1f} ms without the harness's own loop lag: not measurable here"
        return Promise(title, bar, round(measured, 3), "ms", "unknown", why)
    return Promise(title, bar, round(measured, 3), "ms", "failed", note)
