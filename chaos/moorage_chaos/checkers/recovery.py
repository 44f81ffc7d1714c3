"""How soon clients and registrations are back after a loss, and how fast they come."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from moorage_chaos.checkers.base import Checker, held, judge_quantile, lag_overlap_ms, select
from moorage_chaos.checkers.latency import Losses
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def serving(history: History, moment: int, kind: str) -> set[str]:
    """Clients whose name begins with ``kind`` that hold a registration at ``moment`` (monotonic ns)."""
    homes: dict[str, set[str]] = defaultdict(set)
    changes: list[tuple[int, bool, str, str]] = [
        (pair.t1 or 0, True, pair.value["client"], pair.value.get("replica", ""))
        for pair in select(history, "register")
        if pair.phase == "ok"
    ]
    changes += [
        (note.t, False, note.value["client"], note.value.get("replica", "")) for note in history.notes("down")
    ]
    for t, up, client, replica in sorted(changes):
        if t > moment:
            break
        if up:
            homes[client].add(replica)
        else:
            homes[client].discard(replica)
    return {client for client, places in homes.items() if places and client.startswith(kind)}


def back_within(name: str, kind: str, total: int, bars: dict[float, int], since: Losses) -> Checker:
    """``bars`` seconds after each loss, at least so many of the ``total`` clients called ``kind…`` are
    registered.
    """

    def check_back_within(history: History) -> Iterator[Promise]:
        losses = since(history)
        for seconds, wanted in bars.items():
            counts = [len(serving(history, t + int(seconds * 1e9), kind)) for t, _ in losses]
            worst = min(counts, default=0)
            lag = sum(lag_overlap_ms(history.notes("lag"), t, t + int(seconds * 1e9)) for t, _ in losses)
            excused = lag > seconds * 1000 / 2
            verdict = "unknown" if worst < wanted and excused else held(worst >= wanted, bool(losses))
            why = (
                f"the harness's own loop stood still for {lag:.0f} ms"
                if verdict == "unknown" and losses
                else ""
            )
            yield Promise(
                f"{name} after {seconds:g} s",
                f">= {wanted}/{total}",
                f"{worst}/{total}",
                "clients",
                verdict,
                why,
            )

    return check_back_within


def peak_rate(name: str, bar: float, window_ms: float, **match: Any) -> Checker:
    """No more than ``bar`` connections are opened within any ``window_ms``."""

    def check_peak_rate(history: History) -> Iterator[Promise]:
        times = sorted(pair.t0 for pair in select(history, "connect", **match) if pair.phase == "ok")
        worst, first = 0, 0
        for last, t in enumerate(times):
            while t - times[first] > window_ms * 1e6:
                first += 1
            worst = max(worst, last - first + 1)
        yield Promise(
            name, f"<= {bar:g}", worst, f"connections in {window_ms:g} ms", held(worst <= bar, bool(times))
        )

    return check_peak_rate


def after_registration(name: str, bar_ms: float, **match: Any) -> Checker:
    """Calls that waited for their target are answered at most ``bar_ms`` after it asked to be registered
    again.
    """

    def check_after_registration(history: History) -> Iterator[Promise]:
        asked: dict[str, list[int]] = defaultdict(list)
        for pair in select(history, "register"):
            asked[pair.value["method"]].append(pair.t0)
        spans = []
        for call in select(history, **match):
            moments = [t for t in asked[call.value["method"]] if call.t0 < t < (call.t1 or 0)]
            if call.phase == "ok" and moments:
                spans.append((moments[-1], call.t1 or 0))
        yield judge_quantile(history, name, spans, 1.0, bar_ms)

    return check_after_registration


def notes(op: str) -> Losses:
    """Moments given by notes of this name."""

    def find(history: History) -> list[tuple[int, str]]:
        return [(note.t, op) for note in history.notes(op)]

    return find
