"""Rows `apply` and `bad-spec`: from one object to a running server, and back to nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from .world import REDIS, SERVER, Cluster, One, merged, server

BAD: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "bad_specs.yaml").read_text())
OWNED = "deployments,services,statefulsets,configmaps,secrets,poddisruptionbudgets,serviceaccounts,hpa,networkpolicies"


def test_one_object_becomes_a_running_server_and_delete_leaves_the_claim(one: One) -> None:
    one.apply(image=SERVER, networkPolicy={"enabled": True}, autoscaling={"maxReplicas": 5})
    body = one.ready()
    status = body["status"]
    assert status["observedGeneration"] == body["metadata"]["generation"]
    assert (status["mode"], status["readyReplicas"]) == ("Clustered", 3)
    assert status["redis"] == {"mode": "Managed", "ready": True}
    children = one.cluster.items(OWNED, *one.labels)
    assert len(children) == 14
    for child in children:
        owners = child["metadata"]["ownerReferences"]
        assert [o["uid"] for o in owners] == [body["metadata"]["uid"]], child["metadata"]["name"]
    table = one.cluster.kubectl("get", "rts", one.name).stdout.splitlines()
    assert table[0].split() == ["NAME", "READY", "MODE", "REPLICAS", "REDIS", "AGE"]
    assert table[1].split()[:5] == [one.name, "True", "Clustered", "3", "Managed"]

    one.delete()
    one.cluster.until(
        "children gone", lambda: not one.cluster.items(f"{OWNED},pods,replicasets", *one.labels)
    )
    assert [c["metadata"]["name"] for c in one.cluster.items("pvc", *one.labels)] == [
        f"data-{one.name}-redis-0"
    ]


def test_delete_takes_the_claim_too_when_it_is_not_to_be_kept(one: One) -> None:
    one.apply(replicas=1, redis={"storage": {"retain": False}})
    one.ready()
    one.delete()
    kinds = "pvc,pods,secrets,statefulsets"
    one.cluster.until("everything gone", lambda: not one.cluster.items(kinds, *one.labels))


def test_zero_replicas_are_ready(one: One) -> None:
    one.apply(replicas=0)
    one.told("Ready", "ScaledToZero")
    assert one.condition("Available")["status"] == "False"
    assert one.child("pdb") is None


def test_every_bad_spec_is_refused_by_name(cluster: Cluster) -> None:
    """The API server alone: no operator is needed to be told what is wrong."""
    for case in BAD:
        body = merged(server(case.get("name", "bad")), {"spec": case.get("spec", {})})
        if drop := case.get("drop"):
            del body["spec"][drop]
        if after := case.get("after"):
            cluster.kubectl("apply", "-f", "-", body=merged(server("bad", paused=True), {"spec": after}))
            done = cluster.kubectl("apply", "--dry-run=server", "-f", "-", body=body, check=False)
            cluster.kubectl("delete", "rts", "bad")
        else:
            done = cluster.kubectl("create", "--dry-run=server", "-f", "-", body=body, check=False)
        assert done.returncode, f"{case['case']} was accepted"
        assert case["field"] in done.stderr, f"{case['case']}: {done.stderr}"
        assert case.get("contains", "") in done.stderr, f"{case['case']}: {done.stderr}"


def test_explicit_nulls_are_stored_and_understood(one: One) -> None:
    nulls = {"secretKeyRef": None, "autoscaling": None, "service": {"nodePort": None}, "replicas": 0}
    redis = {"external": None, "storage": {"className": None}}
    body = merged(server(one.name), {"spec": {**nulls, "redis": redis}})
    one.cluster.kubectl("create", "-f", "-", body=body)
    one.told("Ready", "ScaledToZero")


@pytest.mark.parametrize(
    ("spec", "kind", "reason", "text"),
    [
        ({"secretKeyRef": {"name": "absent", "key": "k"}}, "Degraded", "SecretNotFound", "absent"),
        ({"envFrom": [{"configMapRef": {"name": "absent"}}]}, "Degraded", "ConfigMapNotFound", "absent"),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            "Degraded",
            "Refused",
            "must be less than or equal to cpu limit",
        ),
        (
            {"image": "localhost/absent:0", "imagePullPolicy": "Never"},
            "Degraded",
            "PodsFailing",
            "ErrImageNeverPull",
        ),
        (
            {"metrics": {"serviceMonitor": True}},
            "ConfigurationWarning",
            "ServiceMonitorUnknown",
            "monitoring",
        ),
    ],
    ids=["secret", "config-map", "resources", "image", "monitor"],
)
def test_what_only_the_cluster_can_know_is_a_condition(
    one: One, spec: dict[str, Any], kind: str, reason: str, text: str
) -> None:
    one.apply(**merged({"replicas": 1, "redis": {"mode": "Disabled"}}, spec))
    found = one.told(kind, reason)
    assert found["status"] == "True"
    assert text in found["message"]


def test_a_missing_secret_heals_when_it_comes(one: One) -> None:
    secret = f"{one.name}-mine"
    one.apply(replicas=1, redis={"mode": "Disabled"}, secretKeyRef={"name": secret, "key": "k"})
    one.told("Degraded", "SecretNotFound")
    assert one.child("deployment") is None
    one.cluster.kubectl("create", "secret", "generic", secret, f"--from-literal=k={'x' * 40}")
    one.ready()


def test_a_foreign_object_of_the_same_name_is_left_alone(one: One) -> None:
    one.cluster.kubectl("create", "service", "clusterip", one.name, "--tcp=80:80")
    before = one.there("service")["spec"]
    one.apply(replicas=1, redis={"mode": "Disabled"})
    one.told("Degraded", "NameTaken")
    assert one.there("service")["spec"] == before


def test_two_objects_whose_children_share_a_name_do_not_fight(one: One) -> None:
    one.apply(replicas=0)
    one.told("Ready", "ScaledToZero")
    owner = one.there("service", "-redis")["metadata"]["ownerReferences"]
    other = One(one.cluster, f"{one.name}-redis")
    try:
        other.apply(replicas=0, redis={"mode": "Disabled"})
        other.told("Degraded", "NameTaken")
        assert one.there("service", "-redis")["metadata"]["ownerReferences"] == owner
        assert one.condition("Ready")["status"] == "True"
    finally:
        other.delete()


def test_a_bad_redis_image_is_told_and_healed_by_the_next_one(one: One) -> None:
    one.apply(replicas=0, redis={"image": "localhost/absent:0"}, imagePullPolicy="Never")
    one.told("Degraded", "PodsFailing")
    one.patch(redis={"image": REDIS})
    one.told("RedisReady", "Answering")
    one.told("Degraded", "AsExpected")


def test_a_pod_that_a_limit_range_refuses_is_told_at_once(one: One) -> None:
    limit = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": one.name},
        "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]},
    }
    one.cluster.kubectl("create", "-f", "-", body=limit)
    try:
        one.apply(replicas=1, redis={"mode": "Disabled"})
        one.told("Degraded", "PodsRefused")
        assert "maximum cpu" in one.condition("Degraded")["message"]
    finally:
        one.cluster.kubectl("delete", "limitrange", one.name)


def test_an_object_made_anew_at_once_gets_its_own_children(one: One) -> None:
    """The old one's are still being collected then."""
    one.apply(replicas=1)
    first = one.ready()["metadata"]["uid"]
    key = one.there("secret", "-secret-key")["data"]
    one.cluster.kubectl("delete", "rts", one.name)
    one.apply(replicas=1)
    body = one.ready()
    assert body["metadata"]["uid"] != first
    assert one.there("secret", "-secret-key")["data"] != key
    for child in one.cluster.items(OWNED, *one.labels):
        assert [o["uid"] for o in child["metadata"]["ownerReferences"]] == [body["metadata"]["uid"]]
