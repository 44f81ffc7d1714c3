"""The operations that went worst, each with what else happened meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moorage_chaos.checkers.ends import end_of
from moorage_chaos.history import Event, History, Pair
from moorage_chaos.report.calls import OK, UNTYPED, kind_of
from moorage_chaos.report.timeline import Timeline

EACH = 4
"""Untyped ends, slowest typed ends, slowest successes: so many of each."""
BEFORE_NS = 500_000_000
"""What happened shortly before may be the cause."""
LINES = 30
"""Of a trace; of a longer one the first and the last half of these."""
LAG_MS = 50
"""A shorter lag of the harness explains nothing."""
AROUND = (
    "down",
    "cut",
    "death",
    "alive",
    "draining",
    "fault",
    "undo",
    "lag",
    "cancelled",
    "connect",
    "register",
)


def worst(history: History, timeline: Timeline) -> list[dict[str, Any]]:
    """``{"id", "what", "end", "ms", "at", "trace": [{"ms", "who", "what"}]}``, worst first. ``ms`` of a trace counts
    from the invoke."""
    pairs = history.pairs("call")
    slowest = sorted(pairs, key=lambda p: -(p.ms if p.ms is not None else (timeline.end - p.t0) / 1e6))
    chosen = [p for p in slowest if kind_of(p) == UNTYPED][:EACH]
    chosen += [p for p in slowest if kind_of(p) not in (OK, UNTYPED)][:EACH]
    chosen += [p for p in slowest if kind_of(p) == OK][:EACH]
    around = [event for event in history.events if event.op in AROUND]
    runs: dict[Any, list[Pair]] = {}
    for run in history.pairs("run"):
        runs.setdefault(run.value.get("call"), []).append(run)
    return [_story(pair, runs.get(pair.invoke.id, []), around, timeline) for pair in chosen]


def _story(pair: Pair, runs: Iterable[Pair], around: list[Event], timeline: Timeline) -> dict[str, Any]:
    last = pair.t1 if pair.t1 is not None else timeline.end
    events = [pair.invoke, *([pair.end] if pair.end else [])]
    for run in runs:
        events += [run.invoke, *([run.end] if run.end else [])]
    near = [e for e in around if pair.t0 - BEFORE_NS <= e.t <= last and _concerns(e, pair)]
    events = sorted([*events, *near], key=lambda e: e.t)
    trace: list[dict[str, Any]] = [
        {"ms": round((e.t - pair.t0) / 1e6, 2), "who": e.process, "what": _words(e)} for e in events
    ]
    if len(trace) > LINES:
        left_out = {"ms": None, "who": "", "what": f"… {len(trace) - LINES} left out …"}
        trace[LINES // 2 : -LINES // 2] = [left_out]
    value = pair.value
    route = f"{value.get('caller')} → {value.get('target') or value.get('method')}"
    return {
        "id": pair.invoke.id,
        "what": f"{value.get('method')}: {route}",
        "group": value.get("group", ""),
        "end": end_of(pair),
        "typed": kind_of(pair) != UNTYPED,
        "ms": round(pair.ms, 2) if pair.ms is not None else None,
        "at": timeline.at(pair.t0),
        "trace": trace,
    }


def _concerns(event: Event, pair: Pair) -> bool:
    """What happened to the system concerns every call; what happened to a client, its own."""
    if event.op == "lag":
        return bool(event.value["ms"] >= LAG_MS)
    client = event.value.get("client") or event.value.get("daemon")
    if client is None:
        # The ends of connects and registers carry no client, but are told by the client's own process.
        client = event.process if event.op in ("connect", "register") else None
    return client is None or client in (pair.value.get("caller"), pair.value.get("target"))


def _words(event: Event) -> str:
    hidden = ("account", "owner", "tNs", "goneNs")
    parts = [f"{k} {_short(v)}" for k, v in event.value.items() if k not in hidden and v not in (None, "")]
    phase = "" if event.id is None else f" {event.phase}"
    return f"{event.op}{phase}: {', '.join(parts)}" if parts else f"{event.op}{phase}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "…"
