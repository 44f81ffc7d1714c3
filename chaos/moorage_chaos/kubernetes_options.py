"""The words of the Kubernetes driver on the command line; apart from it, for ``--help`` does without its client."""

from __future__ import annotations

import argparse

NAMESPACE = "realtime"
CONNECT = ("pod", "node-port", "service", "forward")
"""Values of ``--connect``, see :mod:`moorage_chaos.drivers.kubernetes_reach`."""


def add_arguments(root: argparse.ArgumentParser) -> None:
    """The options of this driver."""
    group = root.add_argument_group("with --driver kubernetes")
    group.add_argument(
        "--context", metavar="C", default="", help="of the kubeconfig (default: its current one)"
    )
    group.add_argument(
        "--namespace", metavar="N", default=NAMESPACE, help="of the system (default: %(default)s)"
    )
    group.add_argument("--name", default="", help="of the RealtimeServer (default: the only one there)")
    group.add_argument(
        "--deploy",
        metavar="KIND",
        nargs="?",
        const="auto",
        help="first build and load the images and apply CRD, operator, node helper and a sample: auto (by the "
        "context), minikube[:PROFILE] (started if it does not run), kind[:NAME], testcluster, or archive[:FOLDER], "
        "which only writes the images as OCI archives and stops",
    )
    group.add_argument(
        "--connect", choices=CONNECT, help="how clients reach the Service (default: the first way that works)"
    )
