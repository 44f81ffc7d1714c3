"""Commands of ``run_all.py`` that play nothing: they read what earlier runs have saved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from moorage_chaos import report
from moorage_chaos.display import comparison
from moorage_chaos.history import History
from moorage_chaos.play import judged
from moorage_chaos.report.compare import compare
from moorage_chaos.results import FORMAT
from moorage_chaos.scenarios.base import Scenario
from moorage_chaos.usage import UsageError, check_names
from moorage_chaos.verdict import RowResult

RUN_FILE = "run.json"
"""The object of ``--json``, in every folder of a report."""


def check(files: Sequence[str], rows: dict[str, type[Scenario]]) -> list[RowResult]:
    """Judge saved histories again; a folder stands for every history in it. Raises UsageError."""
    paths = [path for name in files for path in _histories(Path(name))]
    if not paths:
        raise UsageError("check needs a history file, or the folder of a report")
    results = []
    for path in paths:
        try:
            history = History.load(path)
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: {error}") from error
        row = str(history.header.get("row"))
        check_names([row], rows, "row")
        results.append(judged(rows[row](), history))
    return results


def _histories(path: Path) -> list[Path]:
    return sorted(path.glob("*/history.jsonl")) if path.is_dir() else [path]


def compared(files: Sequence[str], console: Console) -> bool:
    """Print what changed from the first run to the second; True if nothing got worse. Raises UsageError."""
    if len(files) != 2:
        raise UsageError("compare needs two runs: folders of reports, or files written by --json")
    changes = compare(*(load_run(Path(name)) for name in files))
    console.print(comparison(changes))
    return not any(change.worse for change in changes)


def page(files: Sequence[str], console: Console) -> None:
    """Write the page and the summary of saved runs anew. Raises UsageError."""
    if not files:
        raise UsageError("report needs the folder of a report")
    for name in files:
        folder = Path(name)
        report.write(load_run(folder), folder)
        console.print(str(folder / report.PAGE), highlight=False, soft_wrap=True)


def load_run(path: Path) -> dict[str, Any]:
    """The run in a folder or file. Raises UsageError if it is not there or of another format."""
    file = path / RUN_FILE if path.is_dir() else path
    try:
        run: dict[str, Any] = json.loads(file.read_bytes())
        if run["format"] != FORMAT:
            raise ValueError(f"format {run['format']!r} is not {FORMAT}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{file}: {type(error).__name__}: {error}") from error
    return run
