"""``build/bench.json`` and the same as a Markdown table."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FORMAT = 1
"""Version of ``bench.json`` (DESIGN: files that other programs read)."""


def write_whole(path: Path, content: str) -> None:
    """Write a file whole or not at all: to a neighbour, then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(content, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def document(
    machine: Mapping[str, Any],
    runs: Sequence[Mapping[str, Any]],
    load: Mapping[str, Any],
    notes: Sequence[str],
) -> dict[str, Any]:
    """The content of ``bench.json``.

    ``load`` says what was run and how busy the client was; ``notes`` why a goal was missed, and what went wrong.
    """
    return {
        "format": FORMAT,
        "machine": dict(machine),
        "load": dict(load),
        "runs": list(runs),
        "notes": list(notes),
    }


def _number(value: object) -> str:
    return (
        f"{value:,.0f}"
        if isinstance(value, float) and value >= 1000
        else f"{value:g}"
        if value is not None
        else ""
    )


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a Markdown table."""
    head = ("name", "unit", "ours", "peer", "ratio", "better", "goal", "met")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for run in runs:
        met = {True: "yes", False: "**no**", None: ""}[run.get("met")]
        cells = [
            run["name"],
            run["unit"],
            _number(run["ours"]),
            _number(run.get("peer")),
            _number(run.get("ratio")),
        ]
        lines.append("| " + " | ".join([*cells, run["better"], run.get("goal", ""), met]) + " |")
    return "\n".join(lines)


def markdown(content: Mapping[str, Any]) -> str:
    """The page ``bench.md``: what it was taken on, the table, the notes."""
    machine, load = content["machine"], content["load"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    lines = [
        "# Bench",
        "",
        f"{machine['cores']} cores ({machine['processor']}), {machine['memoryMb']} MB, "
        f"kernel {machine['kernel']}, {machine['redis']}, "
        f"load average before: {', '.join(map(str, machine['loadAverageBefore']))}.",
        "",
        f"Ours: {versions}.",
        "",
        f"Peer: {next((run['peerName'] for run in content['runs'] if 'peerName' in run), 'none')}.",
        "",
        f"Medians of {load['rounds']} rounds, ours and the peer's in turn, {load['phaseSeconds']:g} s a phase; "
        "`ratio` is ours divided by the peer's.",
        "",
        table(content["runs"]),
        "",
        "The load client's own share of one core: "
        + ", ".join(f"{name} {share:.0%}" for name, share in load["clientShare"].items())
        + ".",
    ]
    if content["notes"]:
        lines += ["", "## Notes", "", *(f"- {note}" for note in content["notes"])]
    return "\n".join(lines) + "\n"


def save(content: Mapping[str, Any], build: Path) -> None:
    """Write ``bench.json`` and ``bench.md``, each whole or not at all."""
    write_whole(build / "bench.json", json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    write_whole(build / "bench.md", markdown(content))
