"""The plugin on a real cluster, run as `kubectl moorage`, as its users do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..cluster.world import CRD, ROOT, STANDIN, Cluster, One, Operator

NAMESPACE = "moorage-plugin-test"
HOW = "no Kubernetes cluster: run `make cluster`, and set KUBECONFIG as it says"
CONFIGURED = bool(os.environ.get("KUBECONFIG"))

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not CONFIGURED and os.environ.get("CI") != "true", reason=HOW),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    if not CONFIGURED:
        pytest.fail(HOW)
    cluster = Cluster(NAMESPACE)
    cluster.kubectl("apply", "-f", str(CRD))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=20s", "crd/realtimeservers.moorage.dev")
    cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
    cluster.kubectl("create", "namespace", NAMESPACE)
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def one(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[One]:
    """An object of two replicas, settled; without a budget of the operator's, so that tests make their own."""
    operator = Operator(tmp_path_factory.mktemp("operator") / "log", NAMESPACE)
    operator.start()
    one = One(cluster, "chat")
    one.apply(replicas=2, image=STANDIN, disruption={"mode": "Disabled"})
    try:
        one.ready()
        yield one
    finally:
        operator.stop()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH with ``kubectl-moorage`` on it, as pip installs it."""
    folder = tmp_path_factory.mktemp("bin")
    plugin = folder / "kubectl-moorage"
    plugin.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m moorage_operator.kubectl.cli "$@"\n')
    plugin.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


class Plugin:
    def __init__(self, path: str) -> None:
        self._environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "operator")}

    def __call__(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        words = ["kubectl", "moorage", command, "-n", NAMESPACE, *arguments]
        return subprocess.run(words, capture_output=True, text=True, timeout=120, env=self._environment)


@pytest.fixture(scope="module")
def plugin(path: str) -> Plugin:
    return Plugin(path)


def names(one: One) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in one.pods())


def test_status_and_clients_tell_of_every_pod(one: One, plugin: Plugin) -> None:
    status = plugin("status", "chat")
    assert status.returncode == 0, status.stderr
    clients = plugin("clients")
    assert clients.returncode == 0, clients.stderr
    for pod in names(one):
        assert f"{pod}   serving   yes" in status.stdout
        assert pod in clients.stdout
    assert "AllReplicasReady" in status.stdout
    assert "claim data-chat-redis-0 Bound" in status.stdout


def test_tail_merges_the_logs_of_all_pods(one: One, plugin: Plugin) -> None:
    done = plugin("tail", "chat", "--no-follow", "--component", "all")
    assert done.returncode == 0, done.stderr
    assert "chat-redis-0" in done.stdout
    assert "Ready to accept connections" in done.stdout


def test_drain_is_refused_by_a_budget_and_says_so_then_goes_through(one: One, plugin: Plugin) -> None:
    first = names(one)[0]
    selector = {
        "matchLabels": {"app.kubernetes.io/instance": "chat", "app.kubernetes.io/component": "server"}
    }
    strict = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "strict", "namespace": NAMESPACE},
        "spec": {"minAvailable": 2, "selector": selector},
    }
    one.cluster.kubectl("apply", "-f", "-", body=strict)
    one.cluster.until(
        "budget counted",
        lambda: (
            json.loads(one.cluster.kubectl("get", "pdb", "strict", "-o", "json").stdout)
            .get("status", {})
            .get("currentHealthy")
            == 2
        ),
    )
    refused = plugin("drain", first)
    assert refused.returncode == 1, refused.stderr
    assert "disruption budget" in refused.stdout
    one.cluster.kubectl("delete", "pdb", "strict")
    one.cluster.until("budget forgotten", lambda: plugin("drain", first, "--dry-run").returncode == 0)
    assert first in names(one), "neither a refusal nor a dry run lets it go"
    done = plugin("drain", first)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{first} is gone after" in done.stdout
    one.ready()
    assert first not in names(one)


def test_a_report_has_no_secrets(one: One, plugin: Plugin, tmp_path: Path) -> None:
    done = plugin("report", "chat", "-o", str(tmp_path / "report"))
    assert done.returncode in (0, 1), done.stderr
    everything = "\n".join(file.read_text() for file in (tmp_path / "report").rglob("*") if file.is_file())
    for name in ("chat-secret-key", "chat-redis-password", "chat-redis-url"):
        data = one.there("secret", name.removeprefix("chat"))["data"]
        assert name in everything
        assert not [key for key, value in data.items() if value in everything]
    assert "AllReplicasReady" in everything


def test_what_is_not_there_is_2(one: One, plugin: Plugin) -> None:
    assert plugin("status", "nobody").returncode == 2
    assert plugin("drain", "chat-redis-0").returncode == 2
    assert plugin("status", "--context", "nowhere").returncode == 2
