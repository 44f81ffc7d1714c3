"""``kubectl moorage`` (``kubectl-moorage`` on PATH): the command line."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from pathlib import Path

from moorage_operator import __version__
from moorage_operator.errors import Forbidden, OperatorError, Unreachable
from moorage_operator.kubectl import clients, logs, pods, report, status
from moorage_operator.kubectl.cluster import Cluster
from moorage_operator.kubectl.drain import Drain, choose
from moorage_operator.kubectl.help import parser
from moorage_operator.kubectl.scrape import scrape_all
from moorage_operator.kubectl.transport import connect

DONE, NOT_WELL, CANNOT = 0, 1, 2
"""Exit codes: done, and all is well; done, and something is not (each command's --help says what); not done."""


def say(line: str) -> None:
    print(line, flush=True)


def complain(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def show_status(cluster: Cluster, namespace: str, given: argparse.Namespace) -> int:
    bodies = cluster.servers(None if given.all_namespaces else namespace, given.name)
    for index, body in enumerate(bodies):
        if index:
            say("")
        for line in status.render(status.look(cluster, body), now()):
            say(line)
    return DONE if all(status.healthy(body) for body in bodies) else NOT_WELL


def show_clients(cluster: Cluster, namespace: str, given: argparse.Namespace) -> int:
    bodies = cluster.servers(None if given.all_namespaces else namespace, given.name)
    complete = True
    for index, body in enumerate(bodies):
        metadata = body["metadata"]
        found = pods.pods_of(cluster, metadata["namespace"], metadata["name"])
        servers = [pod for pod in found if pods.component(pod) == "server"]
        scrapes = scrape_all(cluster, servers)
        complete = complete and clients.complete(servers, scrapes)
        if index:
            say("")
        for line in (f"{metadata['namespace']}/{metadata['name']}", *clients.render(servers, scrapes)):
            say(line)
    return DONE if complete else NOT_WELL


def tail(cluster: Cluster, namespace: str, given: argparse.Namespace) -> int:
    names = tuple(body["metadata"]["name"] for body in cluster.servers(namespace, given.name))
    lines = given.tail if given.tail is not None or given.since is not None else 20
    wanted = logs.Wanted(namespace, names, given.component, given.since, None if lines == -1 else lines)
    if given.follow:
        logs.Following(cluster, wanted, say, complain, stamps=given.timestamps).run()
        return DONE
    found = logs.fetch(cluster, wanted, complain)
    for line in logs.merged(found, stamps=given.timestamps):
        say(line)
    return DONE if len(found) == len(logs.chosen(cluster, wanted)) else NOT_WELL


def drain(cluster: Cluster, namespace: str, given: argparse.Namespace) -> int:
    pod = choose(cluster, namespace, given.pod.removeprefix("pod/"))
    try:
        return Drain(cluster, say).run(pod, dry_run=given.dry_run, timeout=given.timeout)
    except KeyboardInterrupt:
        complain(
            f"\nthe pod goes on draining; to watch it again: kubectl moorage drain {given.pod} -n {namespace}"
        )
        return NOT_WELL


def make_report(cluster: Cluster, namespace: str, given: argparse.Namespace) -> int:
    bodies = cluster.servers(None if given.all_namespaces else namespace, given.name)
    moment = now()
    name = given.name or ("all" if given.all_namespaces else namespace)
    target = given.output or Path(f"moorage-report-{name}-{moment:%Y%m%dT%H%M%SZ}.tar.gz")
    found = report.collect(
        cluster,
        bodies,
        operator_namespace=given.operator_namespace,
        lines=given.log_lines,
        now=moment,
        say=complain,
    )
    try:
        report.write(found, target)
    except OSError as error:
        complain(f"kubectl-moorage: {error}")
        return CANNOT
    for problem in found.problems:
        complain(f"missing: {problem}")
    say(str(target))
    return NOT_WELL if found.problems else DONE


def silence() -> None:
    """The interpreter flushes at its end, and must not stumble over a closed pipe then."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


COMMANDS = {
    "status": show_status,
    "clients": show_clients,
    "tail": tail,
    "drain": drain,
    "report": make_report,
}


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    given = parser(__version__).parse_args(argv)
    try:
        transport, usual = connect(given.kubeconfig, given.context)
        cluster = Cluster(transport, given.request_timeout)
        return COMMANDS[given.command](cluster, given.namespace or usual, given)
    except Forbidden as error:
        complain(
            f"kubectl-moorage: not allowed: {error}\n(docs/operator/kubectl.md lists what each command needs)"
        )
    except Unreachable as error:
        what = f"answers HTTP {error.status}" if error.status else "does not answer"
        complain(
            f"kubectl-moorage: the API server {what}: {error}\n(which one:  kubectl config view --minify)"
        )
    except OperatorError as error:
        complain(f"kubectl-moorage: {error}")
    except BrokenPipeError:
        silence()  # `| head` has seen enough
        return DONE
    except KeyboardInterrupt:
        return DONE
    return CANNOT


if __name__ == "__main__":
    sys.exit(main())
