"""How soon callers were told: from each loss to the ends of the calls that were in flight to it."""

from __future__ import annotations

from collections import Counter
from typing import Any

from moorage_chaos.checkers.base import quantile
from moorage_chaos.checkers.ends import end_of
from moorage_chaos.history import History, Pair
from moorage_chaos.report.timeline import Timeline

SHOWN = 40
"""Losses listed one by one; all of a kind are summed up whatever their number."""

Loss = tuple[int, str, str]
"""(monotonic ns, kind, name of a replica, link or client)."""


def losses(history: History) -> list[Loss]:
    """Faults on replicas and links, and connections that our own clients ended on purpose; oldest first."""
    found: list[Loss] = [
        (int(f.result.get("tNs", f.t0)), str(f.value.get("kind")), str(f.value.get("replica")))
        for f in history.pairs("fault")
        if f.phase == "ok"
    ]
    found += [(n.t, "client cut", str(n.value.get("client"))) for n in history.notes("cut")]
    found += [
        (n.t, "client closed" if n.value["cause"] == "close" else "client cut", str(n.value.get("client")))
        for n in history.notes("down")
        if n.value.get("cause") in ("close", "cut")
    ]
    return sorted(found)


def detections(history: History, timeline: Timeline) -> dict[str, Any]:
    """``{"kinds": [...], "each": [...]}``: per kind of loss and per loss, milliseconds to the ends of the calls that
    were in flight to it and did not succeed. Losses that no call was in flight to are left out."""
    pairs = history.pairs("call")
    each: list[dict[str, Any]] = []
    by_kind: dict[str, list[float]] = {}
    counts: Counter[str] = Counter()
    for t, kind, name in losses(history):
        met = [p for p in pairs if p.t0 < t and (p.t1 is None or p.t1 >= t) and _concerns(p, name)]
        if not met:
            continue
        told = [(p.t1 - t) / 1e6 for p in met if p.t1 is not None and p.phase != "ok"]
        counts[kind] += 1
        by_kind.setdefault(kind, []).extend(told)
        ends = Counter(map(end_of, met))
        each.append(
            {
                "at": timeline.at(t),
                "kind": kind,
                "target": name,
                "calls": len(met),
                "ends": ", ".join(f"{end} x{n}" for end, n in ends.most_common()),
                **_figures(told),
            }
        )
    kinds = [
        {"kind": kind, "losses": counts[kind], "samples": len(told), **_figures(told)}
        for kind, told in sorted(by_kind.items())
    ]
    return {"kinds": kinds, "each": each[:SHOWN], "of": len(each)}


def _concerns(pair: Pair, name: str) -> bool:
    replica = str(pair.value.get("targetReplica") or "")
    base = name.split(":")[0]
    return pair.value.get("target") == name or replica in (name, base) or replica.startswith(f"{base}-")


def _figures(told: list[float]) -> dict[str, float | None]:
    if not told:
        return {"first": None, "p50": None, "last": None}
    return {"first": round(min(told), 2), "p50": round(quantile(told, 0.5), 2), "last": round(max(told), 2)}
