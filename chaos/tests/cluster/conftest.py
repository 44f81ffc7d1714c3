"""Tests on a cluster: skipped without one, but never in CI, where that would hide a gap."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
HOW = "no Kubernetes cluster: run `make cluster`, then `make test-chaos-cluster` (or set KUBECONFIG)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(400))
            if not os.environ.get("KUBECONFIG") and os.environ.get("CI") != "true":
                item.add_marker(pytest.mark.skip(reason=HOW))


@pytest.fixture(scope="session", autouse=True)
def cluster() -> None:
    if not os.environ.get("KUBECONFIG"):
        pytest.fail(HOW)
