"""Everything the page shows of one run, as values: from the ``--json`` object and the histories beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from moorage_chaos.history import History
from moorage_chaos.report.calls import calls, copies
from moorage_chaos.report.delivery import deliveries
from moorage_chaos.report.detection import detections
from moorage_chaos.report.lives import bands, clients, lanes
from moorage_chaos.report.timeline import Timeline
from moorage_chaos.report.worst import worst

MUTANTS_FILE = "mutants.json"
"""Beside ``run.json`` if ``run_all.py mutants`` has been run into that folder."""


def of_row(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A row of ``--json`` with what its history tells under ``history``: None if there is none, or it
    cannot be drawn (``trouble`` says why)."""
    path = folder / row["row"] / "history.jsonl"
    try:
        history = History.load(path)
        return {**row, "promise": history.header.get("promise", ""), "history": of_history(history)}
    except Exception as error:  # a history that cannot be drawn must not cost the page of all others
        return {
            **row,
            "promise": "",
            "history": None,
            "trouble": f"{path.name}: {type(error).__name__}: {error}",
        }


def of_history(history: History) -> dict[str, Any]:
    """All charts and tables of one history."""
    timeline = Timeline.of(history)
    shown = bands(history, timeline)
    return {
        "seconds": timeline.seconds,
        "events": len(history.events),
        "bands": shown,
        "lanes": lanes(history, timeline, shown),
        "calls": calls(history, timeline),
        "copies": copies(history, timeline),
        "clients": clients(history, timeline),
        "detections": detections(history, timeline),
        "deliveries": deliveries(history),
        "worst": worst(history, timeline),
    }


def mutants(folder: Path) -> dict[str, Any] | None:
    """The object that ``run_all.py mutants`` wrote; None if it was not run into this folder. Raises ValueError if the
    file is no JSON."""
    path = folder / MUTANTS_FILE
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def of_run(run: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The run, its rows with their histories, and the mutants that were tried."""
    return {**run, "rows": [of_row(row, folder) for row in run["rows"]], "mutants": mutants(folder)}
