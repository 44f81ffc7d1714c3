"""The component `user-affinity` as pods: two HAProxies that never spoke to each other send a user to one replica."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from .conftest import fresh
from .world import ROOT, SERVER, Cluster, One, Operator, client, read

NAMESPACE = "moorage-affinity"
HAPROXY = os.environ.get("MOORAGE_HAPROXY_IMAGE", "localhost/moorage-haproxy:dev")


def component(folder: Path) -> str:
    """What a user's overlay renders to, in a namespace of the test's."""
    shutil.copytree(ROOT / "kustomize", folder / "kustomize")
    own = folder / "kustomize" / "overlays" / "own"
    own.mkdir()
    name, _, tag = HAPROXY.rpartition(":")
    body = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": NAMESPACE,
        "components": ["../../components/user-affinity"],
        "images": [{"name": "haproxy", "newName": name, "newTag": tag}],
    }
    (own / "kustomization.yaml").write_text(yaml.safe_dump(body))
    file = folder / "kustomize" / "components" / "user-affinity" / "haproxy.cfg"
    file.write_text(file.read_text().replace(".realtime.svc", f".{NAMESPACE}.svc"))
    return str(own)


@pytest.fixture(scope="module")
def chat(crd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[One]:
    for cluster in fresh(NAMESPACE):
        operator = Operator(tmp_path_factory.mktemp("operator") / "log", NAMESPACE)
        operator.start()
        try:
            one = One(cluster, "chat")
            one.apply(image=SERVER, replicas=3)
            cluster.kubectl("apply", "-k", component(tmp_path_factory.mktemp("overlay")))
            one.ready(120)
            cluster.kubectl("rollout", "status", "deployment/chat-affinity", "--timeout=60s")
            yield one
        finally:
            operator.stop()


def address(cluster: Cluster) -> str:
    """URL of a node's port that leads to the balancers."""
    cluster.kubectl("patch", "service", "chat-affinity", "-p", '{"spec":{"type":"NodePort"}}')
    service = cluster.get("service", "chat-affinity")
    assert service is not None
    return cluster.address(service["spec"]["ports"][0]["nodePort"])


def homes(cluster: Cluster, url: str, *seeds: str) -> dict[str, str]:
    """Seed of an account → the replica that all its connections reach, once both balancers know the same replicas.

    How many they count does not tell that: one may still count a replica that is gone when the other counts the new.
    """

    def same() -> dict[str, str] | None:
        with client("homes.py", url, *seeds) as process:
            found: dict[str, list[str]] = json.loads(read(process, 90))
        if any(len(set(replicas)) > 1 for replicas in found.values()):
            return None
        return {seed: replicas[0] for seed, replicas in found.items()}

    return cluster.until("every account is on one replica", same)


def agreed(cluster: Cluster, replicas: int) -> bool:
    """All balancers count so many replicas as up: what comes and goes reaches them at moments of their own."""
    found = []
    for pod in cluster.items("pods", "-l", "app.kubernetes.io/name=chat-affinity"):
        if not pod["metadata"].get("deletionTimestamp"):
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:8404/proxy/metrics"
            text = cluster.kubectl("get", "--raw", path).stdout
            found += re.findall(
                r'^haproxy_backend_active_servers\{proxy="by_subject"\} (\d+)', text, re.MULTILINE
            )
    return found == [str(replicas)] * 2


def test_a_user_is_on_one_replica_through_either_balancer_and_through_new_ones(chat: One) -> None:
    url = address(chat.cluster)
    chat.cluster.until("all replicas known", lambda: agreed(chat.cluster, 3))
    before = homes(chat.cluster, url)
    assert len(set(before.values())) > 1
    chat.cluster.kubectl("rollout", "restart", "deployment/chat-affinity")
    chat.cluster.kubectl("rollout", "status", "deployment/chat-affinity", "--timeout=120s")
    chat.cluster.until("all replicas known", lambda: agreed(chat.cluster, 3))
    # Asked again: a replica whose check was late once is left out for a second.
    chat.cluster.until("the same replicas as before", lambda: homes(chat.cluster, url, *before) == before)
    gone = next(iter(before.values()))
    pod = next(name for name in (p["metadata"]["name"] for p in chat.pods()) if gone.startswith(name))
    chat.cluster.kubectl("delete", "pod", pod)
    chat.ready()
    chat.cluster.until("the new replica is known", lambda: agreed(chat.cluster, 3))

    def only_those_of_the_gone_and_of_the_new_one_moved() -> bool:
        after = homes(chat.cluster, url, *before)
        moved = {seed for seed in before if after[seed] != before[seed]}
        new = set(after.values()) - set(before.values())
        assert {seed for seed, home in before.items() if home == gone} <= moved
        # The replica that replaces it has an address of its own and takes its share from all.
        return all(before[seed] == gone or after[seed] in new for seed in moved)

    chat.cluster.until("nobody else moved", only_those_of_the_gone_and_of_the_new_one_moved)
