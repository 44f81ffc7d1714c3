"""``run_all.py``: which rows to play, and what to write about it."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import secrets
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from moorage_chaos import report, saved
from moorage_chaos.display import Display, summary, table
from moorage_chaos.display import console as make_console
from moorage_chaos.drivers.kinds import KINDS
from moorage_chaos.drivers.local import ENTRY
from moorage_chaos.faults.journal import recover
from moorage_chaos.results import as_json, overall, versions, write_json, write_whole
from moorage_chaos.runner import Runner, Selection
from moorage_chaos.scenarios import discover
from moorage_chaos.scenarios.base import Scenario
from moorage_chaos.usage import USAGE_ERROR, UsageError, check_names
from moorage_chaos.verdict import EXIT_CODES, RowResult

COMMANDS = {
    "run": "play rows (default)",
    "check": "judge saved histories again: files, or folders of reports",
    "compare": "what changed from run A to run B: folders of reports, or files of --json; 1 if anything got worse",
    "report": "write the page of a saved run anew",
    "recover": "undo what a harness that was killed left behind",
}
NOT_REPLAYED = ("command", "files", "seed", "report", "json", "junit", "list")
EPILOG = """\
examples:
  ./run_all.py                                   every row, three replicas and a Redis on this machine
  ./run_all.py --list                            rows, lanes, promises
  ./run_all.py --only bystander,broadcast --seed 7
                                                 two rows, played as in the run that printed seed 7
  ./run_all.py --safe-only --json out.json --junit out.xml
                                                 nothing is killed; results for CI
  ./run_all.py --mutant drop-event               a broken server: the rows that must notice it, and turn red
  ./run_all.py check REPORT/bystander/history.jsonl
                                                 judge a saved history again
  ./run_all.py compare REPORT-A REPORT-B         what got better or worse
  ./run_all.py recover                           undo what a harness that was killed left behind

exit codes:
  0  every promise of every row was kept
  1  a promise was broken (wins over 3)
  3  unknown: a row could not be played, a fault did not bite, or a part of the harness broke
  2  wrong usage

Histories, logs and the page are in the folder of --report; docs/chaos.md says how to add a row.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    root = argparse.ArgumentParser(
        prog="run_all.py",
        description="Kill, drain, roll, freeze and cut replicas and Redis under load, and check every promise.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument(
        "command",
        nargs="?",
        choices=tuple(COMMANDS),
        default="run",
        help="; ".join(f"{name}: {text}" for name, text in COMMANDS.items()),
    )
    root.add_argument("files", nargs="*", metavar="FILE", help="for check, compare and report")
    root.add_argument(
        "--driver", choices=KINDS, default="local", help="where replicas live (default: %(default)s)"
    )
    root.add_argument("--list", action="store_true", help="list the rows and stop")
    root.add_argument("--only", metavar="ROW[,ROW]", help="play these rows")
    root.add_argument(
        "--safe-only", action="store_true", help="play only rows that kill, freeze and cut nothing"
    )
    root.add_argument("--seed", type=int, help="of the whole run (default: a random one, which is printed)")
    root.add_argument("--replicas", type=int, default=3, help="of each system (default: %(default)s)")
    root.add_argument(
        "--redis-url", help="use this Redis instead of an embedded one; rows that kill it are unknown"
    )
    root.add_argument(
        "--mutant", metavar="NAME", help="run a broken server; without --only: its rows, which must fail"
    )
    root.add_argument(
        "--serial", action="store_true", help="one lane after the other instead of side by side"
    )
    root.add_argument(
        "--entry",
        metavar="MODULE:FUNCTION",
        default=ENTRY,
        help="the server's entry point (default: %(default)s)",
    )
    root.add_argument("--rows", metavar="DIR", type=Path, help="folder with more rows, a file each")
    root.add_argument(
        "--report", metavar="DIR", type=Path, help="folder of the report (default: build/chaos/<time>)"
    )
    root.add_argument("--json", metavar="FILE", type=Path, help="write the results as JSON (format 1)")
    root.add_argument("--junit", metavar="FILE", type=Path, help="write the results as JUnit XML")
    return root


def choose(arguments: argparse.Namespace, rows: dict[str, type[Scenario]]) -> list[type[Scenario]]:
    """The rows to play. Raises UsageError for unknown names (with near matches) or an empty choice."""
    chosen = list(rows.values())
    if arguments.mutant is not None:
        known = importlib.import_module("moorage_chaos.mutants").NAMES
        check_names([arguments.mutant], known, "mutant")
        if arguments.only is None:
            chosen = [row for row in chosen if arguments.mutant in row.mutants]
    if arguments.only is not None:
        names = [name.strip() for name in arguments.only.split(",") if name.strip()]
        check_names(names, rows, "row")
        chosen = [rows[name] for name in dict.fromkeys(names)]
    if arguments.safe_only:
        chosen = [row for row in chosen if row.safe]
    if not chosen:
        raise UsageError("no row is left by these options")
    return chosen


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
        return _run(arguments, chosen, console)
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
            f"{row.name:<22} {kind:<6}{row.lane:<6}{row.promise}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    return 0


def _run(arguments: argparse.Namespace, rows: list[type[Scenario]], console: Console) -> int:
    started = datetime.now(UTC)
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(2**31)
    folder = arguments.report or Path("build/chaos") / started.strftime("%Y%m%d-%H%M%S")
    selection = Selection(
        rows,
        seed,
        arguments.driver,
        arguments.replicas,
        folder.absolute(),
        versions(),
        arguments.mutant,
        arguments.redis_url,
        arguments.serial,
        arguments.entry,
        arguments.rows,
    )
    console.print(
        f"{len(rows)} rows, driver {arguments.driver}, seed {seed}, report in {folder}", highlight=False
    )
    with Display(console, len(rows)) as display:
        results = asyncio.run(Runner(selection, display).run())
    run = as_json(
        results,
        seed=seed,
        driver=arguments.driver,
        replicas=arguments.replicas,
        started_at=started.isoformat(timespec="seconds"),
        versions=selection.versions,
        mutant=arguments.mutant,
        replay=_replay(arguments, seed),
    )
    code = _conclude(results, console)
    trouble = _write(run, selection.folder, arguments)
    console.print(
        f"seed {seed}, {(datetime.now(UTC) - started).total_seconds():.0f} s, report in {folder}",
        highlight=False,
    )
    for line in trouble:
        print(f"run_all.py: {line}", file=sys.stderr)
    return EXIT_CODES["unknown"] if trouble and code == 0 else code


def _replay(arguments: argparse.Namespace, seed: int) -> str:
    """The command that plays the same again; where its files go is left to the next one."""
    words = ["./run_all.py", "--seed", str(seed)]
    default = parser().parse_args([])
    for name, value in vars(arguments).items():
        if name in NOT_REPLAYED or value == getattr(default, name):
            continue
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    return shlex.join(words)


def _conclude(results: Sequence[RowResult], console: Console) -> int:
    console.print(table(results))
    console.print(summary(results), highlight=False, soft_wrap=True)
    return EXIT_CODES[overall(results)]


def _write(run: dict[str, Any], folder: Path, arguments: argparse.Namespace) -> list[str]:
    """All files of the run; what could not be written, in words. A file that is missing must not look green."""
    trouble = []
    for path, write in (
        (folder / saved.RUN_FILE, lambda path: write_json(run, path)),
        (arguments.json, lambda path: write_json(run, path)),
        (arguments.junit, lambda path: write_whole(path, report.junit(run))),
        (folder, lambda path: report.write(run, path)),
    ):
        if path is None:
            continue
        try:
            write(path)
        except Exception as error:
            trouble.append(f"{path}: {type(error).__name__}: {error}")
    return trouble
