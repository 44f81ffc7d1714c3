"""A fault stays local: those it does not concern notice nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage_chaos.checkers.base import Checker, judge_quantile, quantile, quantile_name, select
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def not_slower(factor: float, floor_ms: float, before: dict[str, Any], during: dict[str, Any]) -> Checker:
    """The slowest (p99) of the calls ``during`` is at most ``factor`` x that of ``before``, or ``floor_ms``
    if more.
    """

    def check_not_slower(history: History) -> Iterator[Promise]:
        samples = [p.ms or 0.0 for p in select(history, **before) if p.phase == "ok"]
        if not samples:
            yield Promise(
                "bystander", f"<= {factor:g} x before", None, "ms", "unknown", "no calls before the fault"
            )
            return
        _, q = quantile_name(0.99, len(samples))
        bar = max(factor * quantile(samples, q), floor_ms)
        pairs = [p for p in select(history, **during) if p.end]
        # Every single call counts ("none slower"), so the maximum is judged.
        yield judge_quantile(history, "bystander calls", [(p.t0, p.t1 or 0) for p in pairs], 1.0, bar)

    return check_not_slower
