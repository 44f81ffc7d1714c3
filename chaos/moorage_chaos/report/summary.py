"""A run as one Markdown page: a table of rows, then every promise that was not kept, then all figures."""

from __future__ import annotations

from typing import Any

SIGNS = {"passed": "passed", "failed": "**failed**", "unknown": "_unknown_"}


def cell(value: Any) -> str:
    """Text for a table cell: no line breaks, no bars."""
    return "–" if value is None or value == "" else str(value).replace("|", "\\|").replace("\n", " ")


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(map(cell, line)) + " |" for line in lines)


def markdown(run: dict[str, Any]) -> str:
    """The page for a ``--json`` object (format 1)."""
    rows = run["rows"]
    counts = [f"{sum(row['verdict'] == verdict for row in rows)} {verdict}" for verdict in SIGNS]
    mutant = f", broken server `{run['mutant']}`" if run.get("mutant") else ""
    parts = [
        f"# Chaos matrix: {', '.join(counts)}",
        f"Seed {run['seed']}, driver {run['driver']}, {run['replicas']} replicas, started {run['startedAt']}{mutant}.",
        table(
            ("row", "verdict", "seconds", "ok", "failed", "unknown"),
            [
                (row["row"], SIGNS[row["verdict"]], f"{row['seconds']:.1f}", *row["counts"].values())
                for row in rows
            ],
        ),
    ]
    parts += [
        f"## {row['row']}: {row['verdict']}\n\n{cell(row.get('reason'))}"
        for row in rows
        if row["verdict"] != "passed"
    ]
    for row in rows:
        figures = [
            (p["name"], p["bar"], p["measured"], p["unit"], SIGNS[p["verdict"]], p.get("why", ""))
            for p in row["promises"]
        ]
        head = ("promise", "bar", "measured", "unit", "verdict", "note")
        mutants = f"\n\nTurned red by: {', '.join(row['mutants'])}" if row["mutants"] else ""
        parts.append(f"## {row['row']}\n\n{table(head, figures)}{mutants}")
    return "\n\n".join(parts) + "\n"
