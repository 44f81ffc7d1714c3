"""``moorage-operator``: the command line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys

from moorage_operator import __version__
from moorage_operator.errors import OperatorError
from moorage_operator.process import Options, run

HELP = """\
Keeps RealtimeServer objects (kubectl get rts) true: for each, a Deployment of servers, its Redis and
everything around them.

In a cluster:      kubectl apply -f manifests/        then  kubectl apply -f manifests/samples/minimal.yaml
On this machine:   KUBECONFIG=~/.kube/config moorage-operator --no-lease --port 0
One namespace:     moorage-operator --namespace realtime   (a Role is enough, no ClusterRole)

GET /healthz fails when reconciling is stuck; GET /metrics is for Prometheus. SIGTERM: finishes and lets a
standby take over at once.
"""


def options_of(argv: list[str] | None = None) -> tuple[Options, str]:
    """Options and log level; exits with a message for a wrong command line."""
    parser = argparse.ArgumentParser(
        prog="moorage-operator", description=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    watched = [name for name in os.environ.get("WATCH_NAMESPACES", "").split(",") if name]
    parser.add_argument(
        "--namespace",
        action="append",
        metavar="NAME",
        help="watch this namespace only; may be repeated (WATCH_NAMESPACES=a,b; default: all)",
    )
    parser.add_argument(
        "--operator-namespace",
        default=os.environ.get("POD_NAMESPACE", "moorage-system"),
        metavar="NAME",
        help="where the Lease lives (POD_NAMESPACE; default: %(default)s)",
    )
    parser.add_argument(
        "--no-lease", action="store_true", help="do not take the Lease: nobody else runs here"
    )
    parser.add_argument(
        "--host", default="0.0.0.0", help="address of health and metrics (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=8080, help="port of health and metrics; 0: any free one")
    parser.add_argument(
        "--resync",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="look at everything anew, in case a watch missed something (default: %(default).0f)",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="default: %(default)s",
    )
    parser.add_argument("--version", action="version", version=__version__)
    given = parser.parse_args(argv)
    if given.resync < 1:
        parser.error("--resync must be at least 1 second")
    if not 0 <= given.port <= 65535:
        parser.error("--port must be 0 to 65535")
    options = Options(
        namespaces=tuple(given.namespace or watched),
        operator_namespace=given.operator_namespace,
        holder=os.environ.get("POD_NAME") or socket.gethostname(),
        lease=not given.no_lease,
        host=given.host,
        port=given.port,
        resync_seconds=given.resync,
    )
    return options, given.log_level


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code: 0 stopped, 1 a part ended, 2 the cluster does not fit."""
    options, level = options_of(argv)
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
    try:
        return asyncio.run(run(options))
    except OperatorError as error:
        print(f"moorage-operator: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
