"""Tests on a cluster: skipped without one, but never in CI, where that would hide a gap."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from moorage_chaos.deploy.commands import ROOT

HERE = Path(__file__).parent
HOW = "no Kubernetes cluster: run `make cluster`, then `make test-chaos-cluster` (or set KUBECONFIG)"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.timeout(600))
            if not os.environ.get("KUBECONFIG") and os.environ.get("CI") != "true":
                item.add_marker(pytest.mark.skip(reason=HOW))


DEPLOY_S = 570


@pytest.fixture(scope="session", autouse=True)
def cluster(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Deployed as users do it, and a row without bars of time passed on it."""
    if not os.environ.get("KUBECONFIG"):
        pytest.fail(HOW)
    command = [sys.executable, str(ROOT / "run_all.py"), "--driver", "kubernetes", "--deploy"]
    row = ["--only", "cross-replica-3", "--report", str(tmp_path_factory.mktemp("deployed"))]
    done = subprocess.run([*command, *row], capture_output=True, text=True, timeout=DEPLOY_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
