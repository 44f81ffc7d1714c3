"""How calls ended: ok, typed, or not at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise

RPC_CODES = frozenset(
    {
        "invalid_params",
        "not_available",
        "self_call",
        "target_disconnected",
        "timeout",
        "backplane_unavailable",
        "overloaded",
        "cancelled",
        "internal_error",
    }
)
"""PROTOCOL, table of RPC codes."""

CALLER_LOST = "caller_lost"
"""Written by our load clients when the caller's own connection ended under its call."""


def end_of(pair: Pair) -> str:
    """``ok``, a code, or ``unaccounted``."""
    if pair.phase == "ok":
        return "ok"
    return str(pair.result.get("code", "unaccounted"))


def describe(pairs: list[Pair]) -> str:
    """Ends and how often each came, most frequent first."""
    return ", ".join(f"{end} x{n}" for end, n in Counter(map(end_of, pairs)).most_common())


def all_ok(name: str, expected: int, **match: Any) -> Checker:
    """``expected`` calls were made and every one succeeded with the answer of its own run."""

    def check_all_ok(history: History) -> Iterator[Promise]:
        pairs = select(history, **match)
        good = [p for p in pairs if p.phase == "ok" and p.result.get("answered") in (None, p.invoke.id)]
        why = "" if len(good) == len(pairs) else describe(pairs)
        if len(pairs) < expected:
            yield Promise(
                name,
                f"{expected}/{expected}",
                f"{len(good)}/{len(pairs)}",
                "calls",
                "unknown",
                f"only {len(pairs)} of {expected} calls were made; {describe(pairs)}",
            )
            return
        verdict = held(len(good) == len(pairs))
        yield Promise(name, f"{expected}/{expected}", f"{len(good)}/{len(pairs)}", "calls", verdict, why)

    return check_all_ok


def typed_ends(*, lost_callers: bool = False, allow: frozenset[str] | None = None, **match: Any) -> Checker:
    """Every call ended, with success or a code of the table.

    ``lost_callers``: the row cuts callers too, so a call may end with its caller's connection, if a ``down``
    of that caller lies within the call, or, ``delivered: no``, if the caller had no connection all the time.
    ``allow``: codes that may occur in this row; any other one is a failure.
    """

    def check_typed_ends(history: History) -> Iterator[Promise]:
        pairs = select(history, **match)
        downs = history.notes("down")
        connects = history.pairs("connect", lambda pair: pair.phase == "ok")

        def lost(pair: Pair) -> bool:
            caller, end = pair.value.get("caller"), pair.t1 or 0
            own = [note.t for note in downs if note.value.get("client") == caller]
            if any(pair.t0 <= t <= end + 1_000_000_000 for t in own):
                return True
            last = max((t for t in own if t < pair.t0), default=None)
            ups = (p.t1 for p in connects if p.value.get("client") == caller and p.t1 is not None)
            away = last is not None and not any(last < up < end for up in ups)
            return away and pair.result.get("delivered") == "no"

        codes = RPC_CODES if allow is None else RPC_CODES & allow
        bad = []
        for pair in pairs:
            end = end_of(pair)
            if end == "ok" or end in codes or (end == CALLER_LOST and lost_callers and lost(pair)):
                continue
            bad.append(pair)
        why = describe(bad) if bad else describe(pairs)
        yield Promise(
            "typed ends",
            "100 %",
            f"{len(pairs) - len(bad)}/{len(pairs)}",
            "calls",
            held(not bad, bool(pairs)),
            why,
        )

    return check_typed_ends


def ended_with(name: str, code: str, expected: int, **match: Any) -> Checker:
    """All of at least ``expected`` calls ended with ``code`` (``ok`` or a code of the table)."""

    def check_ended_with(history: History) -> Iterator[Promise]:
        pairs = select(history, **match)
        good = sum(end_of(pair) == code for pair in pairs)
        known = len(pairs) >= expected
        yield Promise(
            name,
            f"{expected}/{expected} {code}",
            f"{good}/{len(pairs)}",
            "calls",
            held(good == len(pairs), known),
            "" if good == len(pairs) else describe(pairs),
        )

    return check_ended_with


def success_rate(name: str, bar: float, minimum: int, **match: Any) -> Checker:
    """At least the share ``bar`` (0..1) of at least ``minimum`` calls succeeded."""

    def check_success_rate(history: History) -> Iterator[Promise]:
        pairs = select(history, **match)
        good = sum(pair.phase == "ok" for pair in pairs)
        share = good / len(pairs) if pairs else 0.0
        yield Promise(
            name,
            f">= {bar * 100:g}",
            round(share * 100, 2),
            "%",
            held(share >= bar, len(pairs) >= minimum),
            "" if good == len(pairs) else describe(pairs),
        )

    return check_success_rate


def answered_by_target(name: str, **match: Any) -> Checker:
    """Each call was answered by the daemon it was meant for (``target`` in the invoke)."""

    def check_answered_by_target(history: History) -> Iterator[Promise]:
        pairs = select(history, **match)
        good = sum(pair.phase == "ok" and pair.result.get("by") == pair.value.get("target") for pair in pairs)
        yield Promise(name, "100 %", f"{good}/{len(pairs)}", "calls", held(good == len(pairs), bool(pairs)))

    return check_answered_by_target


def last_ok(name: str, count: int, **match: Any) -> Checker:
    """The last ``count`` calls succeeded."""

    def check_last_ok(history: History) -> Iterator[Promise]:
        pairs = select(history, **match)[-count:]
        good = sum(pair.phase == "ok" for pair in pairs)
        yield Promise(
            name,
            f"{count}/{count}",
            f"{good}/{len(pairs)}",
            "calls",
            held(good == count, len(pairs) == count),
            "" if good == count else describe(pairs),
        )

    return check_last_ok
