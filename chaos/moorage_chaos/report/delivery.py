"""What each client should have received, and what it did."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from moorage_chaos.checkers.logged import logged, stories
from moorage_chaos.history import History

SHOWN = 60
"""Clients in the table: all that missed something, then others; the sum is over all."""
COLUMNS = ("expected", "delivered", "missing", "doubled", "others", "gaps")


def deliveries(history: History) -> dict[str, Any] | None:
    """``{"clients": [{"client", *COLUMNS}], "of", "total"}``; None for a row without broadcasts and event logs.

    ``expected``: copies of accepted emits that name the client, or events that were logged while a reader was there;
    ``others``: copies that were not meant for it; ``gaps``: numbers missing in the dense ``seq`` of updates between two
    it got, but for those not meant for it; of a reader: gaps that it was told of.
    """
    rows = [*_of_broadcasts(history), *_of_logs(history)]
    if not rows:
        return None
    total = {name: sum(row[name] for row in rows) for name in COLUMNS}
    rows.sort(key=lambda row: not (row["missing"] or row["doubled"] or row["others"] or row["gaps"]))
    return {"clients": rows[:SHOWN], "of": len(rows), "total": total}


def _of_logs(history: History) -> list[dict[str, Any]]:
    appends = logged(history)
    rows = []
    for story in stories(history):
        wanted = {a.result["id"] for a in appends[story.session] if story.wants(a)}
        known = {a.result["id"] for a in appends[story.session]}
        got = Counter(note.value["id"] for note in story.rendered if note.value["id"] is not None)
        rows.append(
            {
                "client": story.reader,
                "expected": len(wanted),
                "delivered": sum(i in got for i in wanted),
                "missing": sum(i not in got for i in wanted),
                "doubled": sum(n - 1 for n in got.values()),
                "others": sum(n for i, n in got.items() if i not in known),
                "gaps": len(story.gaps),
            }
        )
    return rows


def _of_broadcasts(history: History) -> list[dict[str, Any]]:
    emits = {
        emit.invoke.id: emit for emit in history.pairs("emit") if isinstance(emit.value.get("expect"), list)
    }
    copies: dict[str, Counter[Any]] = defaultdict(Counter)
    seqs: dict[str, set[int]] = defaultdict(set)
    for note in history.notes("received"):
        mark, client = note.value.get("mark"), str(note.value.get("client"))
        if mark in emits:
            copies[client][mark] += 1
            if isinstance(note.value.get("seq"), int):
                seqs[client].add(note.value["seq"])
    wanted: dict[str, set[Any]] = defaultdict(set)
    may: dict[str, set[Any]] = defaultdict(set)
    for mark, emit in emits.items():
        for client in emit.value["expect"] if emit.phase != "fail" else ():
            may[client].add(mark)
            if emit.phase == "ok":
                wanted[client].add(mark)
    users = {p.value.get("client") for p in history.pairs("connect") if p.value.get("scope") == "user-scoped"}
    rows = []
    for client in sorted({*wanted, *copies}):
        got = copies[client]
        row = {
            "client": client,
            "expected": len(wanted[client]),
            "delivered": sum(mark in got for mark in wanted[client]),
            "missing": sum(mark not in got for mark in wanted[client]),
            "doubled": sum(n - 1 for mark, n in got.items() if mark in may[client]),
            "others": sum(n for mark, n in got.items() if mark not in may[client]),
            "gaps": _gaps(seqs[client], emits, client) if client in users else 0,
        }
        rows.append(row)
    return rows


def _gaps(seqs: set[int], emits: dict[Any, Any], client: str) -> int:
    if not seqs:
        return 0
    not_ours = {e.result.get("seq") for e in emits.values() if client not in e.value["expect"]}
    return len(set(range(min(seqs), max(seqs))) - seqs - not_ours)
