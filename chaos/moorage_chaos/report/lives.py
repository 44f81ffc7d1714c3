"""What was done to the system, and who was there when: fault bands, life lanes, connected clients."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from moorage_chaos.history import Event, History, Pair
from moorage_chaos.report.timeline import Timeline, steps

MOMENTARY = ("link-cut", "subscription-kill")
"""Kinds of fault that last no time; nothing has to be undone."""
SHOWN_BANDS = 400
"""More would be one grey page."""


def bands(history: History, timeline: Timeline) -> list[dict[str, Any]]:
    """``{"kind", "target", "from", "to", "proof"}`` per fault that was injected, oldest first; in force until its undo
    was done, or to the end."""
    undone = history.pairs("undo")
    used: set[int | None] = set()
    found = []
    for fault in history.pairs("fault"):
        first = int(fault.result.get("tNs", fault.t0))
        last = timeline.end
        if fault.value.get("kind") in MOMENTARY:
            last = first
        elif fault.value.get("kind") == "roll":
            last = fault.t1 or last
        else:
            undo = _undo_of(fault, undone, used)
            if undo is not None:
                used.add(undo.invoke.id)
                last = undo.t1 or undo.t0
        found.append(
            {
                "kind": str(fault.value.get("kind")),
                "target": str(fault.value.get("replica")),
                "from": timeline.at(first),
                "to": timeline.at(max(first, last)),
                "proof": proof_of(fault),
            }
        )
    return found[:SHOWN_BANDS]


def _undo_of(fault: Pair, undone: list[Pair], used: set[int | None]) -> Pair | None:
    return next(
        (u for u in undone if u.value == fault.value and u.t0 >= fault.t0 and u.invoke.id not in used), None
    )


def proof_of(fault: Pair) -> str:
    """The driver's evidence in words; why there is none, if it did not bite."""
    if fault.phase != "ok":
        return str(fault.result.get("error", "not over"))
    proof = {k: v for k, v in fault.result.get("proof", {}).items() if k not in ("goneNs", "steps")}
    return ", ".join(f"{key} {value}" for key, value in proof.items())


def lanes(history: History, timeline: Timeline, shown: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A lane for each place of a replica (and each worker that died), then one for Redis if something was done to it:
    ``{"name", "spans": [{"from", "to", "state"}]}``. States: ready, draining, down, paused, cut (a link)."""
    notes = [e for e in history.events if e.id is None and e.op in ("death", "alive", "draining")]
    header = history.header
    link_of = dict(zip(map(str, header.get("replicas", ())), map(str, header.get("links", ())), strict=False))
    link_of |= {
        str(e.value.get("replica")): str(e.value.get("link") or e.value.get("replica")) for e in notes
    }
    places: dict[str, list[Event]] = {
        link_of.get(str(name), str(name)): [] for name in header.get("replicas", ())
    }
    for note in notes:
        places.setdefault(link_of[str(note.value.get("replica"))], []).append(note)
    found = []
    for place, events in sorted(places.items()):
        spans = _life(sorted(events, key=lambda e: e.t), timeline)
        spans += [
            {"from": band["from"], "to": band["to"], "state": "paused" if band["kind"] == "pause" else "cut"}
            for band in shown
            if (band["kind"] == "pause" and link_of.get(band["target"], band["target"]) == place)
            or (band["kind"].startswith("link-") and _is_place(band["target"], place))
        ]
        found.append({"name": place, "spans": spans})
    redis = [band for band in shown if band["kind"].startswith("redis")]
    if redis:
        found.append({"name": "redis", "spans": _redis(redis, timeline)})
    return found


def _is_place(link: str, place: str) -> bool:
    base = link.split(":")[0]
    return place == base or place.startswith(f"{base}-")


def _life(events: list[Event], timeline: Timeline) -> list[dict[str, Any]]:
    states = {"death": "down", "alive": "ready", "draining": "draining"}
    # What is heard of first tells what it was before: one that comes up was not there.
    state = "down" if events and events[0].op == "alive" else "ready"
    spans: list[dict[str, Any]] = []
    since = 0.0
    for event in events:
        at = max(0.0, timeline.at(event.t))
        spans.append({"from": since, "to": at, "state": state})
        state, since = states[event.op], at
    spans.append({"from": since, "to": timeline.seconds, "state": state})
    return [span for span in spans if span["to"] > span["from"]]


def _redis(shown: list[dict[str, Any]], timeline: Timeline) -> list[dict[str, Any]]:
    spans: list[dict[str, Any]] = []
    since = 0.0
    for band in shown:
        state = "paused" if "pause" in band["kind"] else "down"
        spans.append({"from": since, "to": band["from"], "state": "ready"})
        spans.append({"from": band["from"], "to": band["to"], "state": state})
        since = band["to"]
    spans.append({"from": since, "to": timeline.seconds, "state": "ready"})
    return [span for span in spans if span["to"] > span["from"]]


def clients(history: History, timeline: Timeline) -> dict[str, Any]:
    """The reconnect curve: how many clients are connected, and how many hold a registration. ``{"connected": {"x",
    "y"}, "registered": {"x", "y"}}``; a client with two connections counts once."""
    return {
        name: steps([(timeline.at(t), change) for t, change in _presence(history, op)])
        for name, op in (("connected", "connect"), ("registered", "register"))
    }


def _presence(history: History, op: str) -> list[tuple[int, int]]:
    """(monotonic ns, +1 or -1) as clients begin and cease to be there."""
    changes: list[tuple[int, bool, str, str]] = [
        (
            pair.t1 or 0,
            True,
            str(pair.value.get("client")),
            str(pair.result.get("replica") or pair.value.get("replica", "")),
        )
        for pair in history.pairs(op)
        if pair.phase == "ok"
    ]
    changes += [
        (note.t, False, str(note.value.get("client")), str(note.value.get("replica", "")))
        for note in history.notes("down")
    ]
    homes: dict[str, set[str]] = defaultdict(set)
    found = []
    for t, up, client, replica in sorted(changes):
        before = bool(homes[client])
        if up:
            homes[client].add(replica)
        else:
            homes[client].discard(replica)
        if before != bool(homes[client]):
            found.append((t, 1 if up else -1))
    return found
