"""``run_all.py``: which rows to play, and what to write about it."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import secrets
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from moorage_chaos import report, saved
from moorage_chaos.arguments import choose, parser, replay_of, words_of
from moorage_chaos.display import Display, proofs, summary, table
from moorage_chaos.display import console as make_console
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.faults.journal import recover
from moorage_chaos.proof import NOT_TRIED, prove
from moorage_chaos.results import as_json, overall, versions, write_json, write_whole
from moorage_chaos.runner import Runner, Selection
from moorage_chaos.scenarios import discover
from moorage_chaos.scenarios.base import Scenario
from moorage_chaos.shrink import named, shrink
from moorage_chaos.shrink import parse as parse_faults
from moorage_chaos.usage import USAGE_ERROR, UsageError
from moorage_chaos.verdict import EXIT_CODES, RowResult


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = parser().parse_args(argv)
    console = make_console()
    try:
        if arguments.files and arguments.command not in ("check", "compare", "report"):
            raise UsageError(f"{arguments.command} takes no files")
        if arguments.command == "recover":
            for line in recover() or ["nothing was left behind"]:
                print(line)
            return 0
        if arguments.command == "compare":
            return 0 if saved.compared(arguments.files, console) else EXIT_CODES["failed"]
        if arguments.command == "report":
            saved.page(arguments.files, console)
            return 0
        rows = _rows(arguments.rows)
        if arguments.command == "check":
            return _conclude(saved.check(arguments.files, rows), console)
        if arguments.replicas < 1:
            raise UsageError("--replicas must be at least 1")
        if arguments.driver == "local" and sys.platform != "linux" and not arguments.list:
            raise UsageError("the local driver needs Linux (/proc, prctl); run it in a container")
        chosen = choose(arguments, rows)
        if arguments.list:
            return _list(chosen, console)
        return (_prove if arguments.command == "mutants" else _run)(arguments, chosen, console)
    except UsageError as error:
        print(f"run_all.py: {error}", file=sys.stderr)
        return USAGE_ERROR


def _rows(folder: Path | None) -> dict[str, type[Scenario]]:
    if folder is not None and not folder.is_dir():
        raise UsageError(f"--rows: {folder} is no folder")
    try:
        return discover(folder)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _list(rows: Sequence[type[Scenario]], console: Console) -> int:
    for row in rows:
        kind = "safe" if row.safe else "kills"
        console.print(
            f"{row.name:<22} {kind:<6}{'--only' if row.on_demand else row.lane:<7}{row.promise}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    return 0


def _run(arguments: argparse.Namespace, rows: list[type[Scenario]], console: Console) -> int:
    if (arguments.deploy or "").startswith("archive"):
        return _archives(arguments, console)
    selection = _selection(arguments, rows, console)
    results, trouble = _play(arguments, selection, console)
    code = EXIT_CODES[overall(results)]
    return EXIT_CODES["unknown"] if trouble and code == 0 else code


def _selection(arguments: argparse.Namespace, rows: list[type[Scenario]], console: Console) -> Selection:
    folder = arguments.report or Path("build/chaos") / datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    try:
        faults = parse_faults(arguments.faults) if arguments.faults is not None else None
    except ValueError as error:
        raise UsageError(f"--faults: {error}") from error
    return Selection(
        rows,
        arguments.seed if arguments.seed is not None else secrets.randbelow(2**31),
        arguments.driver,
        arguments.replicas,
        folder.absolute(),
        versions(),
        arguments.mutant if arguments.command == "run" else None,
        arguments.redis_url,
        arguments.serial,
        arguments.entry,
        arguments.rows,
        faults,
        _cluster(arguments, console),
    )


def _cluster(arguments: argparse.Namespace, console: Console) -> dict[str, Any] | None:
    """The driver's options, with everything deployed that was asked for; None for the local driver."""
    if arguments.driver != "kubernetes":
        return None
    from moorage_chaos.on_kubernetes import prepare  # half a second that local runs do without

    try:
        return prepare(arguments, lambda text: console.print(text, highlight=False)).as_json()
    except DriverError as error:
        raise UsageError(str(error)) from error


def _archives(arguments: argparse.Namespace, console: Console) -> int:
    from moorage_chaos.on_kubernetes import archives

    try:
        archives(arguments.deploy, lambda text: console.print(text, highlight=False))
    except DriverError as error:
        raise UsageError(str(error)) from error
    return 0


def _play(
    arguments: argparse.Namespace, selection: Selection, console: Console
) -> tuple[list[RowResult], list[str]]:
    """Play, print, write every file; the results, and what could not be written."""
    started = datetime.now(UTC)
    where = f"seed {selection.seed}, report in {_shown(selection.folder)}"
    console.print(f"{len(selection.rows)} rows, driver {selection.driver}, {where}", highlight=False)
    with Display(console, len(selection.rows)) as display:
        runner = Runner(selection, display)
        results = asyncio.run(runner.run())
    _conclude(results, console)
    run = as_json(
        results,
        seed=selection.seed,
        driver=selection.driver,
        replicas=selection.replicas,
        started_at=started.isoformat(timespec="seconds"),
        versions=selection.versions,
        mutant=selection.mutant,
        replay=replay_of(arguments, selection.seed),
    )
    if arguments.shrink is not None and not runner.interrupted:
        _shrink(arguments, selection, results, run, console)
    trouble = _write(run, selection.folder, arguments)
    seconds = (datetime.now(UTC) - started).total_seconds()
    console.print(f"{where}, {seconds:.0f} s", highlight=False, soft_wrap=True)
    for line in trouble:
        print(f"run_all.py: {line}", file=sys.stderr)
    return results, trouble


def _shown(folder: Path) -> Path:
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _shrink(
    arguments: argparse.Namespace,
    selection: Selection,
    results: Sequence[RowResult],
    run: dict[str, Any],
    console: Console,
) -> None:
    """Adds ``shrunk`` to the rows of ``run`` that failed, with the command that plays what is left."""
    for result, row in zip(results, run["rows"], strict=True):
        shrunk = shrink(selection, result, console, arguments.shrink) if result.verdict == "failed" else None
        if shrunk is None:
            continue
        left = argparse.Namespace(**{**vars(arguments), "only": result.row, "faults": named(shrunk.faults)})
        replay = replay_of(left, selection.seed)
        row["shrunk"] = {**shrunk.as_json(), "replay": replay}
        console.print(
            f"{result.row} fails with {len(shrunk.faults)} of {len(shrunk.of)} faults: {replay}",
            highlight=False,
            soft_wrap=True,
        )


def _prove(arguments: argparse.Namespace, rows: list[type[Scenario]], console: Console) -> int:
    """Without a run in the folder, the rows are first played as they are: no row may be red without a mutant."""
    selection = _selection(arguments, rows, console)
    known = importlib.import_module("moorage_chaos.mutants").NAMES
    names = list(known) if arguments.mutant is None else words_of(arguments.mutant)
    if not (selection.folder / saved.RUN_FILE).exists():
        _play(arguments, selection, console)
    control = saved.load_run(selection.folder)
    found = prove(
        selection, names, control, console, every_row=arguments.every_row, budget_s=arguments.budget
    )
    console.print(proofs(found))
    report.write(control, selection.folder)
    console.print(f"report in {_shown(selection.folder)}", highlight=False, soft_wrap=True)
    if all(row["red"] for row in found["mutants"]):
        return EXIT_CODES["passed"]
    tried = [row for row in found["mutants"] if row["verdict"] != NOT_TRIED]
    return EXIT_CODES["unknown" if all(row["red"] for row in tried) else "failed"]


def _conclude(results: Sequence[RowResult], console: Console) -> int:
    console.print(table(results))
    console.print(summary(results), highlight=False, soft_wrap=True)
    return EXIT_CODES[overall(results)]


def _write(run: dict[str, Any], folder: Path, arguments: argparse.Namespace) -> list[str]:
    """All files of the run; what could not be written, in words. A file that is missing must not look green."""
    trouble = []
    files: list[tuple[Path | None, Callable[[Path], None]]] = [
        (folder / saved.RUN_FILE, lambda path: write_json(run, path)),
        (arguments.json, lambda path: write_json(run, path)),
        (arguments.junit, lambda path: write_whole(path, report.junit(run))),
        (folder, lambda path: report.write(run, path)),
    ]
    for path, write in files:
        if path is None:
            continue
        try:
            write(path)
        except Exception as error:
            trouble.append(f"{path}: {type(error).__name__}: {error}")
    return trouble
