"""Honest ends: each ``target_disconnected`` has a recorded death or disconnect behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise

TOLD_WITHIN_NS = 2_000_000_000
"""A loss may be told this long after it: detection of a hang takes up to 1.5 s (MATRIX, freeze-replica)."""

LETHAL = ("kill", "freeze", "cut", "stop", "drain", "roll", "term")
"""Kinds of fault that may take a target away; matched by the beginning of the fault's ``kind``."""


def honest_disconnects(**match: Any) -> Checker:
    """Join every ``target_disconnected`` with the end of a connection, or of a replica, that served the
    method.

    The daemons that could have served a call are those that registered its method. Each loss counts from 2 s
    before the call (it may have been told late) to the call's end.
    """

    def check_honest_disconnects(history: History) -> Iterator[Promise]:
        registered: dict[str, set[str]] = {}
        for pair in select(history, "register"):
            registered.setdefault(pair.value["method"], set()).add(pair.value["client"])
        homes: dict[str, list[tuple[int, str]]] = {}
        for pair in select(history, "connect"):
            if pair.end is not None and pair.phase == "ok":
                places = (pair.result.get("replica", ""), pair.result.get("link", ""))
                homes.setdefault(pair.value["client"], []).extend(
                    (pair.end.t, str(place)) for place in places
                )
        losses = _losses(history)
        pairs = [p for p in select(history, **match) if p.result.get("code") == "target_disconnected"]
        false = [pair for pair in pairs if not _explained(pair, registered, homes, losses)]
        why = "; ".join(f"call {p.invoke.id} to {p.value.get('method')}" for p in false[:5])
        yield Promise(
            "target_disconnected without a loss",
            "0",
            len(false),
            "calls",
            held(not false),
            why or f"{len(pairs)} ends joined",
        )

    return check_honest_disconnects


def _losses(history: History) -> list[tuple[int, str, str]]:
    """``(t, "client"|"replica", name)`` of everything that ended a connection or a replica."""
    found = [(note.t, "client", str(note.value.get("client"))) for note in history.notes("down")]
    found += [(note.t, "replica", str(note.value.get("replica"))) for note in history.notes("death")]
    for pair in select(history, "fault"):
        if str(pair.value.get("kind", "")).startswith(LETHAL):
            last = pair.t1 or pair.t0
            found += [(t, "replica", str(name)) for name in _replicas(pair) for t in (pair.t0, last)]
    return found


def _replicas(pair: Pair) -> list[Any]:
    named = pair.value.get("replica")
    return list(pair.value.get("replicas", ())) + ([named] if named is not None else [])


def _explained(
    pair: Pair,
    registered: dict[str, set[str]],
    homes: dict[str, list[tuple[int, str]]],
    losses: list[tuple[int, str, str]],
) -> bool:
    servers = registered.get(pair.value.get("method", ""), set())
    replicas = {replica for client in servers for t, replica in homes.get(client, ()) if t <= (pair.t1 or 0)}
    return any(
        pair.t0 - TOLD_WITHIN_NS <= t <= (pair.t1 or 0)
        and name in (servers if kind == "client" else replicas)
        for t, kind, name in losses
    )
