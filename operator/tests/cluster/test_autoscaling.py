"""Row `scale`: the real HPA controller writes the scale subresource, after a metric that the test sets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from .external_metrics import Metric, external_metrics
from .world import Cluster, One

LOAD = {
    "type": "External",
    "external": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
"""Ten a replica: a load of 40 wants four."""
HPA_SECONDS = 90
"""[s] The controller looks every 15 s, and learns of new kinds every 30 s."""


@pytest.fixture(scope="module")
def metric(cluster: Cluster) -> Iterator[Metric]:
    with external_metrics(cluster) as metric:
        yield metric


def wanted(one: One) -> int:
    """``spec.replicas``, which the scale subresource writes."""
    return int(one.body()["spec"]["replicas"])


def condition(one: One, kind: str) -> dict[str, Any]:
    status = one.there("hpa").get("status") or {}
    found = [c for c in status.get("conditions") or [] if c["type"] == kind]
    return found[0] if found else {}


def writers_of_replicas(one: One) -> set[str]:
    """Who set ``spec.replicas`` by the scale subresource."""
    shown = one.cluster.kubectl("get", "rts", one.name, "-o", "json", "--show-managed-fields").stdout
    return {
        entry["manager"]
        for entry in json.loads(shown)["metadata"]["managedFields"]
        if entry.get("subresource") == "scale" and "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    }


def test_spec_autoscaling_raises_the_replicas_and_takes_its_time_to_lower_them(
    one: One, metric: Metric
) -> None:
    metric.set(20)
    one.apply(replicas=2, autoscaling={"minReplicas": 2, "maxReplicas": 4, "metrics": [LOAD]})
    one.ready()
    metric.set(90)
    one.cluster.until("the HPA wrote", lambda: wanted(one) == 4, HPA_SECONDS)
    body = one.ready()
    assert (body["status"]["replicas"], body["status"]["readyReplicas"]) == (4, 4)
    # The HPA's status is a write of its own, after that of the replicas.
    one.cluster.until(
        "limited", lambda: condition(one, "ScalingLimited").get("reason") == "TooManyReplicas", HPA_SECONDS
    )
    assert writers_of_replicas(one) == {"kube-controller-manager"}
    metric.set(20)
    one.cluster.until(
        "held back", lambda: condition(one, "AbleToScale").get("reason") == "ScaleDownStabilized", HPA_SECONDS
    )
    assert wanted(one) == 4


def test_an_hpa_of_ones_own_lowers_them_and_the_emptiest_go(one: One, metric: Metric) -> None:
    """One without the long window of ours, so that the test sees the way down."""
    metric.set(40)
    one.apply(replicas=4)
    one.ready()
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": f"{one.name}-quick"},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "moorage.dev/v1alpha1",
                "kind": "RealtimeServer",
                "name": one.name,
            },
            "minReplicas": 1,
            "maxReplicas": 6,
            "metrics": [LOAD],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }
    one.cluster.kubectl("create", "-f", "-", body=hpa)
    try:
        before = one.connections()
        metric.set(20)
        one.cluster.until("the HPA wrote", lambda: wanted(one) == 2, HPA_SECONDS)
        one.ready()
        assert one.connections() == before[2:]
        metric.set(50)
        one.cluster.until("the HPA wrote", lambda: wanted(one) == 5, HPA_SECONDS)
        assert one.ready()["status"]["readyReplicas"] == 5
    finally:
        one.cluster.kubectl("delete", "hpa", f"{one.name}-quick")
