"""The commands of other programs, word for word: what is written here is the contract with those programs.

Sources: the help of `minikube image load`, `minikube service`, `kind load image-archive`, `docker build` and
`docker buildx build`.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from moorage_chaos.deploy import commands, images
from moorage_chaos.deploy.providers import Provider, chosen, detect
from moorage_chaos.drivers.base import DriverError

IMAGE = images.NODE


class Recorded:
    """Stands in for running: notes each command, fails those that begin as told."""

    def __init__(self, *failing: str) -> None:
        self.calls: list[list[str]] = []
        self._failing = failing

    def __call__(self, argv: list[str]) -> subprocess.CompletedProcess[str]:
        self.calls.append(argv)
        bad = " ".join(argv).startswith(self._failing) if self._failing else False
        return subprocess.CompletedProcess(argv, 1 if bad else 0, "out", "no such thing" if bad else "")


def test_minikube_is_fed() -> None:
    run = Recorded()
    reference = Provider("minikube", "dev", run).provide(IMAGE)
    tag = images.tag(IMAGE)
    assert reference == tag
    assert run.calls == [
        ["docker", "build", "-q", "-f", "chaos/node/Dockerfile", "-t", tag, "."],
        ["minikube", "-p", "dev", "image", "load", tag],
    ]


def test_minikube_is_started_only_if_it_does_not_run() -> None:
    run = Recorded("minikube -p dev status")
    assert Provider("minikube", "dev", run).start()
    assert run.calls == [
        ["minikube", "-p", "dev", "status", "-o", "json"],
        ["minikube", "-p", "dev", "start", "--nodes=2", "--kubernetes-version=v1.34.0", "--wait=all"],
    ]
    running = Recorded()
    assert not Provider("minikube", "dev", running).start()
    assert len(running.calls) == 1


def test_minikube_opens_a_service() -> None:
    assert commands.minikube_service("dev", "realtime", "chat") == [
        *("minikube", "-p", "dev", "service", "-n", "realtime", "chat", "--url")
    ]


def test_kind_is_fed() -> None:
    run = Recorded()
    Provider("kind", "ci", run).provide(IMAGE)
    build, save, load = run.calls
    assert build[:2] == ["docker", "build"]
    assert save[:3] == ["docker", "save", "-o"]
    assert load == ["kind", "load", "image-archive", save[3], "--name", "ci"]


def test_an_archive_is_written(tmp_path: Path) -> None:
    run = Recorded()
    Provider("archive", str(tmp_path), run).provide(IMAGE)
    (call,) = run.calls
    tag = images.tag(IMAGE)
    archive = tmp_path / f"{tag.replace(':', '-')}.tar"
    assert call == [
        *("docker", "buildx", "build", "-f", "chaos/node/Dockerfile", "-t", tag),
        *("--output", f"type=oci,dest={archive},name={tag}", "."),
    ]


def test_the_test_cluster_is_fed() -> None:
    run = Recorded()
    reference = Provider("testcluster", run=run).provide(IMAGE)
    (call,) = run.calls
    assert call[1:] == [
        *(str(commands.BOX), "image", ".", images.tag(IMAGE), "-f", "chaos/node/Dockerfile"),
        *("--ignorefile", "chaos/node/Dockerfile.dockerignore", "--layers"),
        *("--build-arg", "PYTHON_IMAGE=localhost/python:box"),
    ]
    assert reference == f"localhost/{images.tag(IMAGE)}"


def test_nodes_are_lost_and_come_back() -> None:
    assert Provider("testcluster").cut("box-2")[2:] == ["cut", "box-2"]
    assert Provider("testcluster").mend("box-2")[2:] == ["mend", "box-2"]
    assert Provider("kind", "ci").cut("ci-worker") == ["docker", "pause", "ci-worker"]
    assert Provider("minikube", "dev").mend("dev-m02") == ["docker", "unpause", "dev-m02"]
    with pytest.raises(DriverError, match="not known"):
        Provider("other").cut("node")


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(DriverError, match="no such thing"):
        Provider("minikube", "dev", Recorded("docker build")).provide(IMAGE)


@pytest.mark.parametrize(
    ("option", "context", "kind", "cluster"),
    [
        ("auto", "kind-ci", "kind", "ci"),
        ("minikube", "", "minikube", "minikube"),
        ("minikube:dev", "x", "minikube", "dev"),
        ("kind", "kind-ci", "kind", "ci"),
        ("kind:other", "kind-ci", "kind", "other"),
        ("testcluster", "box", "testcluster", ""),
        ("archive:out", "", "archive", "out"),
    ],
)
def test_the_option_names_the_cluster(option: str, context: str, kind: str, cluster: str) -> None:
    provider = chosen(option, context)
    assert (provider.kind, provider.cluster) == (kind, cluster)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(DriverError, match="vagrant"):
        chosen("vagrant", "")


def test_contexts_are_known_by_their_names() -> None:
    assert detect("kind-a").cluster == "a"
    assert detect("minikube").kind == "minikube"
    assert detect("").kind == "other"


def test_an_unknown_cluster_is_not_fed() -> None:
    with pytest.raises(DriverError, match="archive"):
        Provider("other").provide(IMAGE)
