"""Honest ends: each ``target_disconnected`` has a recorded death or disconnect behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise

TOLD_WITHIN_NS = 2_000_000_000
"""A loss may be told this long after it: detection of a hang takes up to 1.5 s (MATRIX, freeze-replica)."""

SEEN_WITHIN_NS = 1_000_000_000
"""A client may see the end of its own connection this much later than its server did (the way back was cut
too).
"""

STALL_NS = 10_000_000_000
"""A replica that says it did not run for a while was out of reach at most this long before it said so."""

LETHAL = ("kill", "terminate", "pause", "roll", "link-")
"""Beginnings of the kinds of fault that may take a target away."""

Loss = tuple[int, int, str, str]
"""``(from ns, to ns, "client"|"replica", name)``: when a connection or a replica went, or from when until
when it was out of reach.
"""


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


def _losses(history: History) -> list[Loss]:
    found: list[Loss] = [
        (n.t - SEEN_WITHIN_NS, n.t, "client", str(n.value.get("client"))) for n in history.notes("down")
    ]
    found += [
        (n.t, n.t, "replica", str(n.value[key]))
        for n in history.notes("death")
        for key in ("replica", "link")
        if key in n.value
    ]
    found += [
        (n.t - STALL_NS, n.t + TOLD_WITHIN_NS, "replica", str(n.value[key]))
        for n in history.notes("stalled")
        for key in ("replica", "link")
        if key in n.value
    ]
    undone = select(history, "undo")
    for fault in select(history, "fault"):
        if str(fault.value.get("kind", "")).startswith(LETHAL):
            same = [u.t1 or u.t0 for u in undone if u.value == fault.value and u.t0 >= fault.t0]
            last = min(same, default=history.events[-1].t)
            # A link of a replica to Redis is named after the replica, too.
            found.append((fault.t0, last, "replica", str(fault.value.get("replica")).removesuffix(":redis")))
    return found


def _explained(
    pair: Pair, registered: dict[str, set[str]], homes: dict[str, list[tuple[int, str]]], losses: list[Loss]
) -> bool:
    servers = registered.get(pair.value.get("method", ""), set())
    end = pair.t1 or pair.t0
    places = {place for client in servers for t, place in homes.get(client, ()) if t <= end}
    return any(
        first <= end
        and last >= pair.t0 - TOLD_WITHIN_NS
        and name in (servers if kind == "client" else places)
        for first, last, kind, name in losses
    )
