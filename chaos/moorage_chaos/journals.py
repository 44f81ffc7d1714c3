"""What workers said they reported, as operations ``append`` of a history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from moorage_chaos.drivers.base import Driver
from moorage_chaos.history import History, Phase
from moorage_chaos.marks import mark_of
from moorage_chaos.worker import PREFIX


async def collect(driver: Driver, history: History, sessions: Iterable[str]) -> None:
    """Of all workers, those that were killed too; ``sessions``: this row's."""
    wanted = frozenset(sessions)
    for worker in driver.workers:
        add(history, await driver.told(worker, PREFIX), wanted)


def add(history: History, lines: Iterable[str], sessions: frozenset[str]) -> None:
    """Lines of :mod:`moorage_chaos.worker`, without the prefix. An invoke without an end may have happened."""
    begun: dict[tuple[str, int], dict[str, Any]] = {}
    ends: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines:
        row = orjson.loads(line)
        (begun if row["phase"] == "invoke" else ends)[row["worker"], row["n"]] = row
    for at, row in begun.items():
        if row["session"] not in sessions:
            continue
        value = {name: row[name] for name in ("session", "type", "key", "transient")}
        attempt = row["data"].get("attempt") if isinstance(row["data"], dict) else None
        value |= {"mark": mark_of(row["type"], row["data"]), "worker": row["worker"], "attempt": attempt}
        end = ends.get(at)
        phase: Phase = "ok" if end is not None and end["phase"] == "ok" else "fail"
        result: dict[str, Any] = (
            {} if end is None else {k: end[k] for k in ("id", "seq", "error") if k in end}
        )
        t1 = None if end is None else int(end["t"])
        history.record("append", int(row["t"]), t1, value, result, process=row["worker"], phase=phase)
