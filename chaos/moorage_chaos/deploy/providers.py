"""The kinds of cluster that the harness can feed: what to run to start it, to load an image, to lose a node."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from moorage_chaos.deploy import commands
from moorage_chaos.deploy.images import Image, tag
from moorage_chaos.drivers.base import DriverError

Kind = Literal["minikube", "kind", "testcluster", "archive", "other"]
COMMAND_BOUND_S = 1800.0
"""Of one command: the first build downloads every dependency."""
Run = Callable[[list[str]], subprocess.CompletedProcess[str]]


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    """In the root of the repository; never raises for the exit code. Raises DriverError if there is no such program."""
    try:
        return subprocess.run(
            argv, cwd=commands.ROOT, capture_output=True, text=True, timeout=COMMAND_BOUND_S, check=False
        )
    except FileNotFoundError as error:
        raise DriverError(f"{argv[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise DriverError(f"{' '.join(argv)} did not end within {COMMAND_BOUND_S:g} s") from error


@dataclass
class Provider:
    """``cluster``: the minikube profile, the name of the kind cluster; for ``archive`` the folder."""

    kind: Kind
    cluster: str = ""
    run: Run = run

    def must(self, argv: list[str]) -> str:
        """What it printed. Raises DriverError with its words if it failed."""
        done = self.run(argv)
        if done.returncode:
            words = (done.stderr or done.stdout).strip()[-800:]
            raise DriverError(f"{' '.join(argv)} ended with {done.returncode}: {words}")
        return done.stdout

    def start(self) -> bool:
        """Start minikube if it does not run; whether it was started. The others are not started from here."""
        if self.kind != "minikube" or self.run(commands.minikube_status(self.cluster)).returncode == 0:
            return False
        self.must(commands.minikube_start(self.cluster))
        return True

    def reference(self, image: Image) -> str:
        """By which a pod names it."""
        return f"localhost/{tag(image)}" if self.kind == "testcluster" else tag(image)

    def provide(self, image: Image) -> str:
        """Build it and bring it onto every node; its reference. Raises DriverError."""
        name = tag(image)
        if self.kind == "testcluster":
            self.must(commands.box_image(name, image.dockerfile, image.arguments))
        elif self.kind == "minikube":
            self.must(commands.docker_build(name, image.dockerfile, image.arguments))
            self.must(commands.minikube_load(self.cluster, name))
        elif self.kind == "kind":
            self.must(commands.docker_build(name, image.dockerfile, image.arguments))
            with tempfile.TemporaryDirectory(prefix="moorage-chaos-") as folder:
                archive = Path(folder) / "image.tar"
                self.must(commands.docker_save(name, archive))
                self.must(commands.kind_load(self.cluster, archive))
        elif self.kind == "archive":
            archive = Path(self.cluster) / f"{name.replace(':', '-')}.tar"
            archive.parent.mkdir(parents=True, exist_ok=True)
            if not archive.exists():
                self.must(commands.oci_build(name, image.dockerfile, archive, image.arguments))
        else:
            raise DriverError(
                "this cluster is neither minikube, kind nor the project's test cluster: build the images by "
                "--deploy archive:FOLDER, load them yourself, and deploy by manifests/"
            )
        return self.reference(image)

    def cut(self, node: str) -> list[str]:
        """Command that takes a node away from the network. Raises DriverError where nobody knows how."""
        return self._node(commands.box("cut", node), commands.docker_pause(node))

    def mend(self, node: str) -> list[str]:
        return self._node(commands.box("mend", node), commands.docker_unpause(node))

    def _node(self, box: list[str], docker: list[str]) -> list[str]:
        if self.kind == "testcluster":
            return box
        if self.kind in ("kind", "minikube"):
            return docker
        raise DriverError("how a node of this cluster is lost is not known")


def detect(context: str) -> Provider:
    """By the context's name, as the tools give it, and by the test cluster's network namespace."""
    if context.startswith("kind-"):
        return Provider("kind", context.removeprefix("kind-"))
    if context == "box" and commands.BOX_NAMESPACE.exists():
        return Provider("testcluster")
    if context == "minikube" or _is_minikube(context):
        return Provider("minikube", context)
    return Provider("other")


def _is_minikube(profile: str) -> bool:
    """A profile of another name; no minikube installed means no."""
    if not profile:
        return False
    try:
        return run(commands.minikube_status(profile)).returncode == 0
    except DriverError:
        return False


def chosen(option: str, context: str) -> Provider:
    """``--deploy [KIND[:NAME]]``; ``auto`` looks at the context. Raises DriverError for an unknown kind."""
    kind, _, name = option.partition(":")
    match kind:
        case "auto":
            return detect(context)
        case "minikube":
            return Provider("minikube", name or context or "minikube")
        case "kind":
            return Provider("kind", name or context.removeprefix("kind-") or "kind")
        case "testcluster":
            return Provider("testcluster")
        case "archive":
            return Provider("archive", name or "build/images")
    raise DriverError(
        f"--deploy {option}: auto, minikube[:PROFILE], kind[:NAME], testcluster or archive[:FOLDER]"
    )
