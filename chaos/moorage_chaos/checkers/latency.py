"""How long operations took, and how long after a fault their callers were answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from moorage_chaos.checkers.base import Checker, held, judge_quantile, quantile, select
from moorage_chaos.checkers.ends import end_of
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise

Losses = Callable[[History], list[tuple[int, str]]]
"""Finds ``(monotonic ns, name of a daemon or replica)`` of what was lost."""


def duration(
    name: str, q: float, bar_ms: float, *, op: str = "call", only_ok: bool = True, **match: Any
) -> Checker:
    """The ``q`` quantile of the operations' time from invoke to end is at most ``bar_ms``."""

    def check_duration(history: History) -> Iterator[Promise]:
        pairs = [p for p in select(history, op, **match) if p.end and (p.phase == "ok" or not only_ok)]
        yield judge_quantile(history, name, [(p.t0, p.t1 or 0) for p in pairs], q, bar_ms)

    return check_duration


def batch_duration(name: str, bar_ms: float, batch: str, **match: Any) -> Checker:
    """Each batch of calls (calls that carry the same value under ``batch``) is answered within ``bar_ms`` in
    all.
    """

    def check_batch_duration(history: History) -> Iterator[Promise]:
        groups: dict[Any, list[Pair]] = {}
        for pair in select(history, **match):
            groups.setdefault(pair.value[batch], []).append(pair)
        spans = [
            (min(p.t0 for p in pairs), max(p.t1 or p.t0 for p in pairs))
            for pairs in groups.values()
            if all(p.end for p in pairs)
        ]
        yield judge_quantile(history, name, spans, 1.0, bar_ms)

    return check_batch_duration


def median_gap(name: str, bar_ms: float, slow: dict[str, Any], fast: dict[str, Any]) -> Checker:
    """The median of the calls ``slow`` exceeds that of the calls ``fast`` by at most ``bar_ms``."""

    def check_median_gap(history: History) -> Iterator[Promise]:
        medians = []
        for match in (slow, fast):
            samples = [p.ms or 0.0 for p in select(history, **match) if p.phase == "ok"]
            if not samples:
                yield Promise(name, f"<= {bar_ms:g}", None, "ms", "unknown", f"no calls {match}")
                return
            medians.append(quantile(samples, 0.5))
        gap = medians[0] - medians[1]
        why = f"p50 {medians[0]:.2f} ms against {medians[1]:.2f} ms"
        yield Promise(name, f"<= {bar_ms:g}", round(gap, 3), "ms", held(gap <= bar_ms), why)

    return check_median_gap


def after_loss(
    name: str,
    quantiles: dict[float, float],
    losses: Losses,
    *,
    ends: tuple[str, ...] = (),
    at_least: int = 1,
    **match: Any,
) -> Checker:
    """Calls in flight to a target when it was lost are answered soon: from the loss to the answer, by
    quantile.

    ``losses`` finds ``(t, name)`` in the history: the moment (monotonic ns) and the daemon or replica that
    was lost. A call was in flight to it if it began before and ended after, and names it as ``target`` or
    ``targetReplica``. ``ends``: the ends that count (all if empty). Fewer than ``at_least`` samples: unknown.
    """

    def check_after_loss(history: History) -> Iterator[Promise]:
        pairs = [p for p in select(history, **match) if p.end and (not ends or end_of(p) in ends)]
        spans = [
            (t, p.t1 or 0)
            for t, lost in losses(history)
            for p in pairs
            if lost in (p.value.get("target"), p.value.get("targetReplica")) and p.t0 < t <= (p.t1 or 0)
        ]
        if len(spans) < at_least:
            yield Promise(name, f">= {at_least}", len(spans), "samples", "unknown", "too few calls in flight")
            return
        for q, bar in quantiles.items():
            yield judge_quantile(history, name, spans, q, bar)

    return check_after_loss


def faults(*kinds: str) -> Losses:
    """Losses of replicas by faults of these kinds; the moment is the one the driver gives as evidence."""

    def find(history: History) -> list[tuple[int, str]]:
        return [
            (int(pair.result.get("tNs", pair.t0)), str(pair.value.get("replica")))
            for pair in select(history, "fault", kind=kinds)
            if pair.phase == "ok"
        ]

    return find


def downs(*causes: str) -> Losses:
    """Losses of clients whose connection ended for one of these causes (``close``, ``cut``, …)."""

    def find(history: History) -> list[tuple[int, str]]:
        return [
            (note.t, str(note.value.get("client")))
            for note in history.notes("down")
            if note.value["cause"] in causes
        ]

    return find


def not_before(name: str, bar_ms: float, **match: Any) -> Checker:
    """No operation ended sooner than ``bar_ms`` after its invoke (1 ms is left for clocks that are
    rounded).
    """

    def check_not_before(history: History) -> Iterator[Promise]:
        samples = [p.ms for p in select(history, **match) if p.ms is not None]
        least = min(samples, default=0.0)
        yield Promise(
            f"{name} min", f">= {bar_ms:g}", round(least, 3), "ms", held(least >= bar_ms - 1, bool(samples))
        )

    return check_not_before
