from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from .world import CRD, NAMESPACE, Cluster, One, Operator

HERE = Path(__file__).parent
HOW = "no Kubernetes cluster: run `make cluster images`, then `make test-cluster` (or set KUBECONFIG)"
COUNT = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs a cluster: skipped without one, but never in CI, where it would hide a gap."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(240))
            if not os.environ.get("KUBECONFIG") and os.environ.get("CI") != "true":
                item.add_marker(pytest.mark.skip(reason=HOW))


@pytest.fixture(scope="session")
def crd() -> None:
    if not os.environ.get("KUBECONFIG"):
        pytest.fail(HOW)
    cluster = Cluster("default")
    cluster.kubectl("apply", "-f", str(CRD))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=20s", "crd/realtimeservers.moorage.dev")


def fresh(namespace: str) -> Iterator[Cluster]:
    cluster = Cluster(namespace)
    cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s")
    cluster.kubectl("create", "namespace", namespace)
    yield cluster
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="session")
def cluster(crd: None) -> Iterator[Cluster]:
    yield from fresh(NAMESPACE)


@pytest.fixture(scope="session")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One operator process for all tests that do not kill it."""
    operator = Operator(tmp_path_factory.mktemp("operator") / "log")
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture
def one(cluster: Cluster, operator: Operator) -> Iterator[One]:
    """A name of one's own; the object of that name is deleted afterwards."""
    one = One(cluster, f"t{next(COUNT)}")
    yield one
    one.delete()
