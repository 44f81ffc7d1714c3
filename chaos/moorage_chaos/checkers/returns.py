"""Clients that were cut: whether they were recovered, and whether there was anything to recover."""

from __future__ import annotations

from collections.abc import Iterator

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.checkers.bite import bit
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def all_recovered(expected: int) -> Checker:
    """At least ``expected`` returns, and at every one of them the client was given its socket back."""

    def check_all_recovered(history: History) -> Iterator[Promise]:
        returns = history.notes("return")
        good = sum(note.value["recovered"] is True for note in returns)
        known = len(returns) >= expected
        yield Promise(
            "recovered",
            f"{expected}/{expected}",
            f"{good}/{len(returns)}",
            "returns",
            held(good == len(returns), known),
        )

    return check_all_recovered


def missed_meanwhile(expected: int) -> Checker:
    """Bite: at least ``expected`` copies were due to clients that had no connection when they were emitted."""

    def check_missed_meanwhile(history: History) -> Iterator[Promise]:
        away = absences(history)
        missed = sum(
            any(down < emit.t0 and (emit.t1 or emit.t0) < up for down, up in away.get(client, ()))
            for emit in select(history, "emit")
            if emit.phase == "ok"
            for client in emit.value["expect"]
        )
        yield bit(
            "copies due to clients that were away", f">= {expected}", missed, "copies", missed >= expected
        )

    return check_missed_meanwhile


def absences(history: History) -> dict[str, list[tuple[int, int]]]:
    """Client -> from its ``down`` to its next connect, in monotonic ns."""
    found: dict[str, list[tuple[int, int]]] = {}
    for note in history.notes("down"):
        client = note.value["client"]
        ups = [
            pair.t1
            for pair in select(history, "connect", client=client)
            if pair.phase == "ok" and pair.t1 is not None and pair.t1 > note.t
        ]
        if ups:
            found.setdefault(client, []).append((note.t, min(ups)))
    return found
