"""Command line of the bench."""

from __future__ import annotations

import argparse
import asyncio
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvloop

from moorage_chaos.bench import figures, machine, profile, report, servers
from moorage_chaos.bench.client import BenchError
from moorage_chaos.bench.figures import Phase
from moorage_chaos.bench.processes import Redis
from moorage_chaos.bench.rig import IN_FLIGHT, PACED_RATE, PAIRS, QUICK, SOCKETS, WINDOW, Durations
from moorage_chaos.bench.rounds import Bench

ROUNDS = 3
"""[rounds] Of each server at each number of replicas; figures are medians of them."""


def parser() -> argparse.ArgumentParser:
    """The arguments."""
    made = argparse.ArgumentParser(
        prog="python -m moorage_chaos.bench",
        description="Measure Moorage beside Node's socket.io here; writes bench.json and bench.md.",
    )
    made.add_argument("--only", default="", metavar="SLUG[,SLUG]", help="rows to take (see --list)")
    made.add_argument("--list", action="store_true", help="print the names of all rows and end")
    made.add_argument("--rounds", type=int, default=None, metavar="N", help=f"rounds, default {ROUNDS}")
    made.add_argument("--quick", action="store_true", help="one short round: a look, no figure to quote")
    made.add_argument("--profile", action="store_true", help="also sample our server: profile-*.txt")
    made.add_argument(
        "--servers",
        default="moorage,node",
        metavar="NAMES",
        help="which to run, default moorage,node; node alone prints its figures and writes nothing",
    )
    made.add_argument("--build", type=Path, default=Path("build"), metavar="DIR", help="where to write")
    return made


async def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Run everything; the content of ``bench.json``. Raises :class:`BenchError`, :class:`ValueError`."""
    task = asyncio.current_task()
    assert task is not None
    # SIGINT is the runner's; SIGTERM must end the replicas too.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    only = [name.strip() for name in options.only.split(",") if name.strip()]
    plan = figures.needed(only)
    # A crowd of sockets needs descriptors, here and in the servers, which inherit this.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    durations = QUICK if options.quick else Durations()
    kinds = [name.strip() for name in options.servers.split(",")]
    for name in kinds:
        if name not in servers.KINDS:
            raise ValueError(f"no server is named {name!r}; there are: {', '.join(servers.KINDS)}")
    notes: list[str] = []
    node = servers.node_versions() if "node" in kinds else None
    if "node" in kinds and node is None:
        kinds.remove("node")
        notes.append(servers.MISSING_NODE)
        print(servers.MISSING_NODE, file=sys.stderr)
    peer = servers.peer_name(node) if node else None
    if peer:
        print(f"peer: {peer}")
    with Redis(folder) as redis:
        about = machine.describe(node, redis.version())
        bench = Bench(redis, folder, durations, lambda line: print(line, flush=True))
        notes += await bench.run(plan, kinds, rounds)
        table = figures.rows(bench.samples, peer, only)
        notes += await explain(bench, plan, table, options)
    load = {
        "rounds": rounds, "phaseSeconds": durations.phase, "pairs": PAIRS, "inFlight": IN_FLIGHT,
        "socketsPerReplica": SOCKETS, "broadcastWindow": WINDOW, "pacedDeliveriesPerSecond": PACED_RATE,
        "clientShare": bench.client_shares(),
    }  # fmt: skip
    return report.document(about, table, load, notes)


async def explain(
    bench: Bench, plan: dict[int, list[Phase]], table: Sequence[dict[str, Any]], options: argparse.Namespace
) -> list[str]:
    """A note for each missed goal with what the time goes into. Profiles are taken for it, or because asked."""
    missed = figures.missed(table)
    lost = figures.needed([row["name"] for row in missed]) if missed else {}
    wanted = plan if options.profile else lost
    if servers.MOORAGE.name not in options.servers or not wanted:
        return []
    profiles = await bench.profiles(wanted, options.build)
    notes = []
    for row in missed:
        for replicas, phases in figures.needed([row["name"]]).items():
            for phase in (phase for phase in phases if (replicas, phase) in profiles):
                told = profile.note(profiles[replicas, phase])
                notes.append(
                    f"`{row['name']}`: goal `{row['goal']}` missed. CPU time of our {replicas} replicas, phase "
                    f"{phase} (`profile-{phase}-{replicas}.txt`): {told}"
                )
    return notes


def main(arguments: Sequence[str] | None = None) -> int:
    """0: figures were written (goals may be missed); 1: nothing was written; 2: the arguments are wrong."""
    options = parser().parse_args(arguments)
    if options.list:
        print("\n".join(figures.all_slugs()))
        return 0
    began = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="moorage-bench-") as folder,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            content = runner.run(measure(options, Path(folder)))
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except BenchError as error:
        print(f"bench: {error}\nNothing was written.", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("bench: interrupted. Nothing was written.", file=sys.stderr)
        return 1
    if not content["runs"]:
        print("Without our server there is no row. Nothing was written.")
        return 0
    report.save(content, options.build)
    print(f"\n{report.markdown(content)}")
    print(f"{time.monotonic() - began:.0f} s; written: {options.build}/bench.json, {options.build}/bench.md")
    return 0
