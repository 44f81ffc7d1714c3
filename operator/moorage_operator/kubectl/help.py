"""What may be typed, and the help that teaches it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from moorage_operator.kubectl.logs import components
from moorage_operator.kubectl.text import duration

TOP = """\
What `kubectl get rts` cannot say in a line. Without NAME: every RealtimeServer of the namespace.

  kubectl moorage status                  conditions with reasons, pods with connections, Redis, the budget
  kubectl moorage clients chat            who is connected, by pod and client type
  kubectl moorage tail chat --since 10m   logs of all pods, merged, as they come
  kubectl moorage drain chat-5d9c-x2x8p   let one pod go, and watch its clients leave
  kubectl moorage report chat             one archive for somebody who helps (no Secrets)

Flags stand after `moorage`: kubectl moorage status -n realtime --context prod
"""
END = "Exit codes: 0 done and well, 1 done but something is not well, 2 not done (usage, no cluster, not found)."

STATUS = """\
Conditions with their reasons (a `!` marks what needs somebody), mode, Redis and its claim, the disruption budget,
and for every pod: state, connections, calls in flight, version, restarts, node, age.

  kubectl moorage status                  everything in the namespace
  kubectl moorage status chat -n realtime
  kubectl moorage status -A               every namespace
  until kubectl moorage status chat >/dev/null; do sleep 2; done      wait until it is Ready

Connections are read from each pod's /metrics through the API server (get on pods/proxy); without that right the
rest is shown. Exit 1: an object is not Ready, or the operator has not seen its latest spec.
"""
CLIENTS = """\
Connected sockets of each server pod by client type, the registrations that the pod knows (of the whole cluster,
so all pods should say the same), calls in flight, and how far it is behind the Redis stream.

  kubectl moorage clients chat
  kubectl moorage clients -A              every namespace
  watch kubectl moorage clients chat      while a roll-out moves them

Exit 1: a pod did not answer.
"""
TAIL = """\
Logs of all pods, each line with its pod; new pods join as they come. Ctrl-C ends it.

  kubectl moorage tail chat                              servers, the last 20 lines of each, then as they come
  kubectl moorage tail chat --since 1h --no-follow       the last hour, sorted by time, and out
  kubectl moorage tail chat --component all --timestamps  servers, workers and Redis
  kubectl moorage tail chat --tail -1 --no-follow | grep rpc
"""
DRAIN = """\
Evicts one server pod through the API, so the PodDisruptionBudget is respected, and shows its connections going
to 0. The pod stops taking new clients, tells those it has (`server-draining`), closes them in waves over
spec.drain.windowMs, and ends; a new one takes its place. Calls of Moorage's own clients are not lost.

  kubectl moorage drain chat-5d9c-x2x8p
  kubectl moorage drain chat-5d9c-x2x8p --dry-run        would the budget allow it?

Run again on a pod that is going, it watches. Exit 1: the budget refused (it says what to do), or the pod did not go.
"""
REPORT = """\
One archive (or folder) with the objects, conditions, events, logs, metrics and the operator's own state.
Of Secrets only names, keys and sizes; passwords in URLs are hidden. Logs are as they were written: look at them.

  kubectl moorage report chat                            moorage-report-chat-<time>.tar.gz here
  kubectl moorage report chat -o folder                  a folder
  kubectl moorage report -A --log-lines 500              everything, with shorter logs

Exit 1: written, but something could not be read (README.txt in it says what).
"""


def checked(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """A converter whose ``ValueError`` becomes argparse's message."""

    def wrapped(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return wrapped


def number(least: int) -> Callable[[str], int]:
    """Whole numbers from ``least`` on."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None
        if value < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return convert


def _common() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    group = common.add_argument_group("cluster")
    group.add_argument("-n", "--namespace", metavar="NAME", help="default: that of the context")
    group.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: the current one")
    group.add_argument("--kubeconfig", metavar="FILE", help="default: KUBECONFIG, then ~/.kube/config")
    group.add_argument(
        "--request-timeout",
        type=checked(duration),
        default=15.0,
        metavar="TIME",
        help="bound of one request, such as 5s or 1m (default: 15s)",
    )
    return common


def parser(version: str) -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="kubectl moorage",
        description=TOP,
        epilog=END,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=version)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = _common()

    def command(name: str, short: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=short,
            description=text,
            epilog=END,
            parents=[common],
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    for name, short, text in (
        ("status", "conditions, pods, Redis, budget", STATUS),
        ("clients", "connected sockets by pod and type", CLIENTS),
    ):
        added = command(name, short, text)
        added.add_argument("name", nargs="?", metavar="NAME", help="of a RealtimeServer")
        added.add_argument("-A", "--all-namespaces", action="store_true", help="in every namespace")
    _tail(command("tail", "logs of all pods, merged", TAIL))
    drain = command("drain", "let one server pod go", DRAIN)
    drain.add_argument("pod", metavar="POD", help="a server pod")
    drain.add_argument(
        "--dry-run", action="store_true", help="ask whether it would be allowed, evict nothing"
    )
    drain.add_argument(
        "--timeout",
        type=checked(duration),
        metavar="TIME",
        help="how long to watch (default: the pod's grace + 30s)",
    )
    _report(command("report", "one archive for somebody who helps", REPORT))
    return top


def _tail(added: argparse.ArgumentParser) -> None:
    added.add_argument("name", nargs="?", metavar="NAME", help="of a RealtimeServer")
    added.add_argument(
        "--since", type=checked(duration), metavar="TIME", help="only newer lines: 90s, 10m, 1h30m, 2d"
    )
    added.add_argument(
        "--tail",
        type=number(-1),
        metavar="LINES",
        help="last lines of each pod to begin with (default: 20; all with --since; -1: all)",
    )
    added.add_argument(
        "--no-follow",
        dest="follow",
        action="store_false",
        help="print what is there, sorted by time, and end",
    )
    added.add_argument(
        "--component",
        type=checked(components),
        default=components("server"),
        metavar="WHICH",
        help="server (default), worker, redis, several with commas, or all",
    )
    added.add_argument("--timestamps", action="store_true", help="with the time of each line")


def _report(added: argparse.ArgumentParser) -> None:
    added.add_argument("name", nargs="?", metavar="NAME", help="of a RealtimeServer")
    added.add_argument("-A", "--all-namespaces", action="store_true", help="of every namespace")
    added.add_argument(
        "-o", "--output", type=Path, metavar="PATH", help="a folder, or a file that ends in .tar.gz"
    )
    added.add_argument(
        "--log-lines",
        type=number(1),
        default=5000,
        metavar="LINES",
        help="last lines of each log (default: 5000)",
    )
    added.add_argument(
        "--operator-namespace", default="moorage-system", metavar="NAME", help="default: %(default)s"
    )
