"""Calls to a daemon whose connection is cut: those in flight at a cut, and all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from moorage_chaos.checkers.base import Checker, held, judge_quantile, select
from moorage_chaos.checkers.ends import RPC_CODES, describe, end_of
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise

NEWS_NS = 5_000_000
"""A call begun this soon after a cut meets it too: the news has to travel from the daemon's replica to the
caller's.
"""


def cuts(history: History, client: str) -> list[int]:
    """When the client's connection was cut: by our own note, since the client sees it a little later than its
    callers.
    """
    return [note.t for note in history.notes("cut", client=client)]


def met_by(pair: Pair, moments: list[int]) -> int | None:
    """The cut that the call was in flight at, if any."""
    end = pair.t1 if pair.t1 is not None else pair.t0
    return next((t for t in moments if pair.t0 - NEWS_NS < t < end), None)


def cuts_with_calls(client: str) -> Callable[[History], float]:
    def measure(history: History) -> float:
        moments = cuts(history, client)
        return len({met_by(pair, moments) for pair in select(history)} - {None})

    return measure


def outside_cuts_ok(client: str, *, all_of_them: bool = False, **match: Any) -> Checker:
    """Every call that was not in flight at a cut succeeded; with ``all_of_them`` those in flight too."""

    def check_outside_cuts_ok(history: History) -> Iterator[Promise]:
        moments = cuts(history, client)
        pairs = [p for p in select(history, **match) if all_of_them or met_by(p, moments) is None]
        good = sum(pair.phase == "ok" for pair in pairs)
        name = "calls with onTargetLost wait" if all_of_them else "calls not in flight at a cut"
        why = "" if good == len(pairs) else describe(pairs)
        yield Promise(
            name, "100 %", f"{good}/{len(pairs)}", "calls", held(good == len(pairs), bool(pairs)), why
        )

    return check_outside_cuts_ok


def typed_soon_after_cut(client: str, bar_ms: float, **match: Any) -> Checker:
    """Calls in flight at a cut end, well or typed, within ``bar_ms`` of it."""

    def check_typed_soon_after_cut(history: History) -> Iterator[Promise]:
        moments = cuts(history, client)
        met = [(t, pair) for pair in select(history, **match) if (t := met_by(pair, moments)) is not None]
        untyped = [pair for _, pair in met if end_of(pair) not in RPC_CODES | {"ok"}]
        yield Promise(
            "typed ends of calls in flight",
            "100 %",
            f"{len(met) - len(untyped)}/{len(met)}",
            "calls",
            held(not untyped, bool(met)),
            describe(untyped),
        )
        # A call that waited and then succeeded was begun in the moment of the cut and met nothing.
        spans = [(t, p.t1) for t, p in met if p.t1 is not None and p.phase != "ok"]
        yield judge_quantile(history, "end after the cut", spans, 1.0, bar_ms)

    return check_typed_soon_after_cut
