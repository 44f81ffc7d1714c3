"""Row `node-drain`: evictions through the API."""

from __future__ import annotations

from .world import Cluster, One


def evict(cluster: Cluster, pod: str) -> bool:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": cluster.namespace},
    }
    path = f"/api/v1/namespaces/{cluster.namespace}/pods/{pod}/eviction"
    done = cluster.kubectl("create", "--raw", path, "-f", "-", body=body, check=False)
    assert done.returncode == 0 or "disruption budget" in done.stderr, done.stderr
    return done.returncode == 0


def test_the_budget_holds_at_two_and_does_not_block_at_one(one: One) -> None:
    one.apply(replicas=2)
    one.ready()
    first, second = (pod["metadata"]["name"] for pod in one.pods())
    one.cluster.until("budget counted", lambda: one.there("pdb")["status"].get("disruptionsAllowed") == 1)
    nodes = [node["metadata"]["name"] for node in one.cluster.items("nodes")]
    # Else the first one's replacement could be ready before the second is asked to go, and that would be right.
    one.cluster.kubectl("cordon", *nodes)
    try:
        assert evict(one.cluster, first)
        assert not evict(one.cluster, second), "both replicas could be evicted at once"
    finally:
        one.cluster.kubectl("uncordon", *nodes)
    one.ready()
    one.patch(replicas=1)
    one.ready()
    (last,) = (pod["metadata"]["name"] for pod in one.pods())
    assert evict(one.cluster, last)
    one.ready()


def test_a_node_is_drained_and_the_servers_move(one: One) -> None:
    one.apply(replicas=2)
    one.ready()
    node = one.pods()[0]["spec"]["nodeName"]
    selector = f"--pod-selector=app.kubernetes.io/instance={one.name}"
    try:
        arguments = (
            "drain",
            node,
            selector,
            "--ignore-daemonsets",
            "--delete-emptydir-data",
            "--timeout=90s",
        )
        one.cluster.kubectl(*arguments)
        one.ready()
        assert node not in {pod["spec"]["nodeName"] for pod in one.pods()}
    finally:
        one.cluster.kubectl("uncordon", node)
