"""Calls over time: every latency as a point, rates, quantiles."""

from __future__ import annotations

import math
from typing import Any

from moorage_chaos.checkers.base import quantile
from moorage_chaos.checkers.ends import RPC_CODES, end_of
from moorage_chaos.history import History, Pair
from moorage_chaos.report.timeline import Timeline

OK, TYPED, UNTYPED = 0, 1, 2
"""Kinds of ends: succeeded; ended with a code of the protocol; ended otherwise, or not at all."""
COLUMNS, BINS_PER_DECADE = 500, 20
"""The grid of a thinned scatter: about a pixel wide, and 12 % high."""
ALL_BELOW = 4000
"""So many points are drawn as they are."""
QUANTILES = {"p50": 0.5, "p95": 0.95, "max": 1.0}

Point = tuple[float, float, int]
"""Second of the invoke, milliseconds, kind of end."""


def kind_of(pair: Pair) -> int:
    end = end_of(pair)
    return OK if end == "ok" else TYPED if end in RPC_CODES else UNTYPED


def scatter(pairs: list[Pair], timeline: Timeline) -> dict[str, Any]:
    """``{"of", "x", "y", "k"}``: ``of`` is the number of calls, fewer may be drawn. A call without an end is drawn at
    the time that it was open for."""
    points: list[Point] = []
    for pair in pairs:
        ms = pair.ms if pair.ms is not None else (timeline.end - pair.t0) / 1e6
        points.append((timeline.at(pair.t0), max(ms, 0.001), kind_of(pair)))
    return _drawn(points, timeline)


def _drawn(points: list[Point], timeline: Timeline) -> dict[str, Any]:
    drawn = thinned(points, timeline.seconds)
    return {
        "of": len(points),
        "x": [round(x, 3) for x, _, _ in drawn],
        "y": [float(f"{y:.3g}") for _, y, _ in drawn],
        "k": [k for _, _, k in drawn],
    }


def copies(history: History, timeline: Timeline) -> dict[str, Any] | None:
    """A scatter of deliveries: each copy of a broadcast from the request of its emit, each event of a log from its
    report to the moment a reader rendered it. None for a row without."""
    begun: dict[Any, int] = {emit.invoke.id: emit.t0 for emit in history.pairs("emit")}
    logged: dict[Any, int] = {
        (append.value.get("session"), append.result["id"]): append.t0
        for append in history.pairs("append")
        if append.result.get("id") is not None
    }
    sessions = {note.value.get("reader"): note.value.get("session") for note in history.notes("reader")}
    seen = [(note.t, begun.get(note.value.get("mark"))) for note in history.notes("received")]
    seen += [
        (note.t, logged.get((sessions.get(note.value.get("reader")), note.value.get("id"))))
        for note in history.notes("event")
    ]
    points = [(timeline.at(t0), max((t - t0) / 1e6, 0.001), OK) for t, t0 in seen if t0 is not None]
    return _drawn(points, timeline) if points else None


def thinned(points: list[Point], seconds: float) -> list[Point]:
    """At most one point for each cell of the grid and each kind: the slowest in it; and of each column the fastest and
    the slowest of each kind. What lies alone is always kept. Sorted by time."""
    if len(points) <= ALL_BELOW:
        return sorted(points)
    width = (seconds or 1.0) / COLUMNS
    kept: dict[tuple[int, int, int], Point] = {}
    fastest: dict[tuple[int, int], Point] = {}
    for point in points:
        x, y, k = point
        column = int(x / width)
        cell = (column, int(math.log10(y) * BINS_PER_DECADE), k)
        if cell not in kept or kept[cell][1] < y:
            kept[cell] = point
        if (column, k) not in fastest or fastest[column, k][1] > y:
            fastest[column, k] = point
    return sorted({*kept.values(), *fastest.values()})


def lines(pairs: list[Pair], timeline: Timeline) -> dict[str, Any]:
    """Per bucket, by the moment of the invoke: calls a second that succeeded and that did not, and quantiles [ms] of
    those that ended. ``{"x", "ok", "bad", "p50", "p95", "max"}``; None where nothing ended."""
    count = timeline.buckets()
    good, bad = [0] * count, [0] * count
    samples: list[list[float]] = [[] for _ in range(count)]
    for pair in pairs:
        at = timeline.bucket(pair.t0)
        (good if kind_of(pair) == OK else bad)[at] += 1
        if pair.ms is not None:
            samples[at].append(pair.ms)
    width = timeline.width_s
    found: dict[str, Any] = {
        "x": [round((i + 0.5) * width, 4) for i in range(count)],
        "ok": [n / width for n in good],
        "bad": [n / width for n in bad],
    }
    for name, q in QUANTILES.items():
        found[name] = [float(f"{quantile(ms, q):.3g}") if ms else None for ms in samples]
    return found


def calls(history: History, timeline: Timeline) -> dict[str, Any] | None:
    """Both charts; None for a row without calls."""
    pairs = history.pairs("call")
    if not pairs:
        return None
    return {
        "scatter": scatter(pairs, timeline),
        "lines": lines(pairs, timeline),
        "width": timeline.width_s,
        "ends": [sum(kind_of(pair) == kind for pair in pairs) for kind in (OK, TYPED, UNTYPED)],
    }
