"""Every command line of another program that the harness runs for a cluster, as data. Tested against recorded calls.

Facts of the tools (minikube 1.3x, kind 0.2x, docker 2x): ``minikube image load`` takes a tag of the local docker or an
archive; ``kind load image-archive`` takes an archive of ``docker save``; both load onto every node. A minikube or
kind node with the docker driver is a container: ``docker pause`` freezes it whole, so the node is lost as by a cut.
"""

from __future__ import annotations

import sys
from pathlib import Path

Argv = list[str]
ROOT = Path(__file__).resolve().parents[3]
"""The repository; in an image that holds only the package nothing is built."""
BOX = ROOT / "chaos" / "testcluster" / "box.py"
BOX_NAMESPACE = Path("/run/netns/box")
"""The test cluster's network namespace: there while it runs."""
KUBERNETES_VERSION = "v1.34.0"
"""Of a minikube that we start: the test cluster's."""
NODES = 2


# -- minikube --------------------------------------------------------------------------------------------------------
def minikube_status(profile: str) -> Argv:
    """Exit code 0 exactly if it runs."""
    return ["minikube", "-p", profile, "status", "-o", "json"]


def minikube_start(profile: str) -> Argv:
    """Two nodes, so that a drain has somewhere to go."""
    version = f"--kubernetes-version={KUBERNETES_VERSION}"
    return ["minikube", "-p", profile, "start", f"--nodes={NODES}", version, "--wait=all"]


def minikube_load(profile: str, tag: str) -> Argv:
    return ["minikube", "-p", profile, "image", "load", tag]


def minikube_service(profile: str, namespace: str, name: str) -> Argv:
    """Prints the Service's URL; with the docker driver on a desktop it is a tunnel that lives as long as this runs."""
    return ["minikube", "-p", profile, "service", "-n", namespace, name, "--url"]


# -- kind ------------------------------------------------------------------------------------------------------------
def kind_clusters() -> Argv:
    """Prints a name a line."""
    return ["kind", "get", "clusters"]


def kind_load(cluster: str, archive: Path) -> Argv:
    return ["kind", "load", "image-archive", str(archive), "--name", cluster]


# -- docker ----------------------------------------------------------------------------------------------------------
def docker_build(tag: str, dockerfile: str, arguments: dict[str, str]) -> Argv:
    """From the root of the repository; ``<Dockerfile>.dockerignore`` is found by docker itself."""
    given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    return ["docker", "build", "-q", "-f", dockerfile, "-t", tag, *given, "."]


def docker_save(tag: str, archive: Path) -> Argv:
    return ["docker", "save", "-o", str(archive), tag]


def docker_pause(node: str) -> Argv:
    return ["docker", "pause", node]


def docker_unpause(node: str) -> Argv:
    return ["docker", "unpause", node]


# -- a plain archive -------------------------------------------------------------------------------------------------
def oci_build(tag: str, dockerfile: str, archive: Path, arguments: dict[str, str]) -> Argv:
    """An OCI archive of one image, for any other cluster: its owner loads or pushes it."""
    given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
    output = f"type=oci,dest={archive},name={tag}"
    return ["docker", "buildx", "build", "-f", dockerfile, "-t", tag, *given, "--output", output, "."]


# -- the project's test cluster --------------------------------------------------------------------------------------
def box(*arguments: str) -> Argv:
    return [sys.executable, str(BOX), *arguments]


def box_image(tag: str, dockerfile: str, arguments: dict[str, str]) -> Argv:
    """Builds and loads; no image registry is reached, so the base image is the test cluster's own."""
    ignore = f"{dockerfile}.dockerignore"
    given = [
        word
        for name, value in {"PYTHON_IMAGE": "localhost/python:box", **arguments}.items()
        for word in ("--build-arg", f"{name}={value}")
    ]
    return box("image", ".", tag, "-f", dockerfile, "--ignorefile", ignore, "--layers", *given)


def box_inside() -> Argv:
    """Prefix of a command that shall reach addresses of nodes and pods."""
    return ["nsenter", f"--net={BOX_NAMESPACE}", "--"]
