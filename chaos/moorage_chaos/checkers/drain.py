"""A drain loses no call and sends its clients away at its own pace."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.checkers.ends import describe
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise

PACE_FACTOR = 2.0
"""Waves are jittered, so a second may hold up to twice the mean."""

FEW = 50
"""A drain with fewer clients has no pace to speak of."""


def only_lost_at_cuts(name: str, **match: Any) -> Checker:
    """Each call that failed was in flight when the connection of its caller or of its target ended."""

    def check_only_lost_at_cuts(history: History) -> Iterator[Promise]:
        downs = [(note.t, note.value.get("client")) for note in history.notes("down")]
        pairs = select(history, **match)
        failed = [pair for pair in pairs if pair.phase != "ok"]

        def cut(pair: Pair) -> bool:
            sides = (pair.value.get("caller"), pair.value.get("target"))
            end = pair.t1 if pair.t1 is not None else 0
            return any(client in sides and pair.t0 <= t <= end + 50_000_000 for t, client in downs)

        bad = [pair for pair in failed if not cut(pair)]
        why = describe(bad) if bad else f"{len(failed)} were in flight at a cut"
        yield Promise(name, "0", len(bad), f"of {len(pairs)} calls", held(not bad, bool(pairs)), why)

    return check_only_lost_at_cuts


def drain_pace(kind: str, drain_ms: float) -> Checker:
    """In every drain no second brings more than twice the mean rate of reconnects.

    The drains are the steps of the ``roll`` fault; the clients those whose name begins with ``kind``.
    """

    def check_drain_pace(history: History) -> Iterator[Promise]:
        steps = [
            step for roll in select(history, "fault", kind="roll") for step in roll.result["proof"]["steps"]
        ]
        connects = sorted(p.t0 for p in select(history, "connect") if str(p.value["client"]).startswith(kind))
        worst, judged = 0.0, 0
        for step in steps:
            first, last = step["tNs"], step["proof"]["goneNs"] + 500_000_000
            times = [t for t in connects if first <= t <= last]
            if len(times) < FEW:
                continue
            judged += 1
            mean = len(times) / (drain_ms / 1000)
            worst = max(worst, _peak(times) / mean)
        yield Promise(
            "reconnect rate over the drain's pace",
            f"<= {PACE_FACTOR:g}",
            round(worst, 2),
            "x",
            held(worst <= PACE_FACTOR, judged > 0),
            f"{judged} drains",
        )

    return check_drain_pace


def _peak(times: list[int]) -> int:
    """The most that fall into any one second."""
    worst = first = 0
    for last, t in enumerate(times):
        while t - times[first] > 1_000_000_000:
            first += 1
        worst = max(worst, last - first + 1)
    return worst
