"""The words of ``run_all.py``: options, what they choose, and the command that plays the same again."""

from __future__ import annotations

import argparse
import importlib
import shlex
from pathlib import Path

from moorage_chaos.drivers.kinds import KINDS
from moorage_chaos.drivers.local import ENTRY
from moorage_chaos.kubernetes_options import add_arguments
from moorage_chaos.scenarios.base import Scenario
from moorage_chaos.usage import UsageError, check_names

COMMANDS = {
    "run": "play rows (default)",
    "check": "judge saved histories again: files, or folders of reports",
    "mutants": "play every broken server against the cheapest row that must notice it; 1 if one went unnoticed",
    "compare": "what changed from run A to run B: folders of reports, or files of --json; 1 if anything got worse",
    "report": "write the page of a saved run anew",
    "recover": "undo what a harness that was killed left behind",
}
NOT_REPLAYED = (
    "command",
    "files",
    "seed",
    "report",
    "json",
    "junit",
    "list",
    "shrink",
    "budget",
    "every_row",
    "deploy",
)
SHRINK_TRIES = 24
"""A list of twenty faults of which two matter takes about as many."""
EPILOG = """\
examples:
  ./run_all.py                                   every row, three replicas and a Redis on this machine
  ./run_all.py --list                            rows, lanes, promises
  ./run_all.py --only bystander,broadcast --seed 7
                                                 two rows, played as in the run that printed seed 7
  ./run_all.py --safe-only --json out.json --junit out.xml
                                                 nothing is killed; results for CI
  ./run_all.py --mutant drop-event               a broken server: the rows that must notice it, and turn red
  ./run_all.py mutants --report REPORT           every broken server, noted in the page of that run
  ./run_all.py --only network-loss --seed 7 --shrink
                                                 if it fails: which of its faults it takes
  ./run_all.py check REPORT/bystander/history.jsonl
                                                 judge a saved history again
  ./run_all.py compare REPORT-A REPORT-B         what got better or worse
  ./run_all.py --driver kubernetes --context minikube --deploy
                                                 on pods; docs/chaos-on-kubernetes.md
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
    root.add_argument(
        "--only", metavar="ROW[,ROW]", help="play these rows; some are long and played only when named here"
    )
    root.add_argument(
        "--safe-only", action="store_true", help="play only rows that kill, freeze and cut nothing"
    )
    root.add_argument("--seed", type=int, help="of the whole run (default: a random one, which is printed)")
    root.add_argument("--replicas", type=int, default=3, help="of each system (default: %(default)s)")
    root.add_argument(
        "--redis-url", help="use this Redis instead of an embedded one; rows that kill it are unknown"
    )
    _add_doubts(root)
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
    add_arguments(root)
    root.add_argument("--json", metavar="FILE", type=Path, help="write the results as JSON (format 1)")
    root.add_argument("--junit", metavar="FILE", type=Path, help="write the results as JUnit XML")
    return root


def _add_doubts(root: argparse.ArgumentParser) -> None:
    """What shows that checkers can fail, and what made a row fail."""
    root.add_argument(
        "--mutant",
        metavar="NAME",
        help="run a broken server; without --only: its rows, which must fail (mutants: NAME[,NAME], only these)",
    )
    root.add_argument("--every-row", action="store_true", help="mutants: on every row that must notice it")
    root.add_argument(
        "--budget",
        metavar="SECONDS",
        type=float,
        default=3600.0,
        help="mutants: begin no more after this long (default: %(default)s)",
    )
    root.add_argument("--faults", metavar="N[,N]", help="inject only these faults of the one row, or none")
    root.add_argument(
        "--shrink",
        metavar="TRIES",
        type=int,
        nargs="?",
        const=SHRINK_TRIES,
        help="play rows that fail again, with fewer and fewer of their faults (default: %(const)s times each)",
    )


def choose(arguments: argparse.Namespace, rows: dict[str, type[Scenario]]) -> list[type[Scenario]]:
    """The rows to play. Raises UsageError for unknown names (with near matches) or an empty choice."""
    chosen = list(rows.values())
    if arguments.mutant is not None:
        known = importlib.import_module("moorage_chaos.mutants").NAMES
        names = words_of(arguments.mutant) if arguments.command == "mutants" else [arguments.mutant]
        check_names(names, known, "mutant")
        if arguments.only is None:
            chosen = [row for row in chosen if set(names) & set(row.mutants)]
    if arguments.only is not None:
        names = words_of(arguments.only)
        check_names(names, rows, "row")
        chosen = [rows[name] for name in dict.fromkeys(names)]
    elif not arguments.list:
        chosen = [row for row in chosen if not row.on_demand]
    if arguments.only is None and arguments.driver != "kubernetes":
        chosen = [row for row in chosen if "cluster" not in row.needs]
    if arguments.safe_only:
        chosen = [row for row in chosen if row.safe]
    if not chosen:
        raise UsageError("no row is left by these options")
    if arguments.faults is not None and len(chosen) != 1:
        raise UsageError("--faults needs --only with one row: each row counts its own")
    return chosen


def words_of(text: str) -> list[str]:
    """The words of a list with commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def replay_of(arguments: argparse.Namespace, seed: int) -> str:
    """The command that plays the same again; where its files go is left to the next one."""
    words = ["./run_all.py", "--seed", str(seed)]
    if arguments.command != "run":
        arguments = argparse.Namespace(**{**vars(arguments), "mutant": None})
    default = parser().parse_args([])
    for name, value in vars(arguments).items():
        if name in NOT_REPLAYED or value == getattr(default, name):
            continue
        option = f"--{name.replace('_', '-')}"
        words += [option] if value is True else [option, str(value)]
    return shlex.join(words)
