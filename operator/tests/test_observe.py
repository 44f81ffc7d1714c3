"""Children as Kubernetes gives them → values; junk and other people's objects count for nothing."""

from __future__ import annotations

import datetime
from typing import Any

from moorage_operator.desired.labels import BACKEND
from moorage_operator.observe import UNPLACED_SECONDS, Observed, observe
from moorage_operator.plan import MANAGED, DeploymentSeen
from moorage_operator.resource import parse
from moorage_operator.store import Store

from .schema import defaulted, minimal

NOW = datetime.datetime(2026, 11, 30, 12, 0, 0, tzinfo=datetime.UTC)
RESOURCE = parse(defaulted(minimal()))


def seen(*bodies: dict[str, Any]) -> Observed:
    store = Store()
    for body in bodies:
        store.put(body)
    return observe(store, RESOURCE, NOW)


def meta(name: str, **more: Any) -> dict[str, Any]:
    owner = {"uid": RESOURCE.uid, "controller": True}
    base = {"name": name, "namespace": "realtime", "uid": name, "resourceVersion": "1", "generation": 2}
    return {**base, "ownerReferences": [owner], **more}


def deployment(name: str = "chat", backend: str = MANAGED, **status: int) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta(name),
        "spec": {
            "replicas": 3,
            "strategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"annotations": {BACKEND: backend}}},
        },
        "status": {"observedGeneration": 2, **status},
    }


def pod(name: str, ready: bool = True, component: str = "server", **more: Any) -> dict[str, Any]:
    labels = {"app.kubernetes.io/instance": "chat", "app.kubernetes.io/component": component}
    metadata = meta(name, labels=labels, annotations={BACKEND: MANAGED}, **more.pop("metadata", {}))
    metadata["ownerReferences"] = more.pop(
        "owners", [{"kind": "ReplicaSet", "uid": "rs", "controller": True}]
    )
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"conditions": conditions, "podIP": "10.0.0.1", **more.pop("status", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status}


def redis(**status: Any) -> dict[str, Any]:
    claim = {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta("chat-redis"),
        "spec": {"volumeClaimTemplates": [claim]},
        "status": {"observedGeneration": 2, **status},
    }


def test_nothing_is_there() -> None:
    assert seen() == Observed()


def test_a_deployment_and_its_counts() -> None:
    found = seen(deployment(replicas=4, updatedReplicas=2, availableReplicas=3)).deployment
    assert found == DeploymentSeen(MANAGED, 3, recreate=False, settled=True, alive=4, updated=2, available=3)


def test_a_controller_that_has_not_seen_the_last_change_is_not_settled() -> None:
    body = deployment()
    body["status"]["observedGeneration"] = 1
    found = seen(body).deployment
    assert found is not None
    assert not found.settled


def test_a_namesake_of_an_earlier_owner_is_not_ours() -> None:
    body = deployment()
    body["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert seen(body).deployment is None
    going = deployment()
    going["metadata"]["deletionTimestamp"] = "2026-11-30T11:59:00Z"
    assert seen(going).deployment is None


def test_pods_that_serve_go_or_do_not_count() -> None:
    found = seen(
        pod("a"),
        pod("b", ready=False),
        pod("c", metadata={"deletionTimestamp": "2026-11-30T11:59:00Z"}),
        pod("ended", status={"phase": "Failed"}),
        pod("debug", owners=[]),
        pod("redis", component="redis"),
    )
    assert [p.name for p in found.pods] == ["a", "b", "c"]
    assert (found.ready, found.alive) == (1, 2)
    assert found.terminating == {"c": "2026-11-30T11:59:00Z"}
    assert "c" not in found.addresses


def test_redis_is_ready_only_at_its_present_revision() -> None:
    assert seen(redis(readyReplicas=1, currentRevision="a", updateRevision="a")).redis_ready
    assert not seen(redis(readyReplicas=1, currentRevision="a", updateRevision="b")).redis_ready
    assert not seen(redis(readyReplicas=0, currentRevision="a", updateRevision="a")).redis_ready
    found = seen(redis())
    assert (found.redis_exists, found.redis_ready, found.redis_storage) == (True, False, "1Gi")


def test_trouble_that_waiting_does_not_cure() -> None:
    waiting = {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}}
    waiting["lastState"] = {"terminated": {"exitCode": 2}}
    text = seen(pod("a", ready=False, status={"containerStatuses": [waiting]})).trouble
    assert "pod a: CrashLoopBackOff (last exit code 2)" in text
    creating = {"state": {"waiting": {"reason": "ContainerCreating"}}}
    assert seen(pod("a", ready=False, status={"containerStatuses": [creating]})).trouble == ""


def test_a_pod_without_a_node_is_trouble_only_after_a_while() -> None:
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
    ]

    def waiting(seconds: float) -> Observed:
        stamp = (NOW - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return seen(pod("a", metadata={"creationTimestamp": stamp}, status={"conditions": conditions}))

    assert (waiting(1).trouble, waiting(1).unplaced) == ("", True)
    late = waiting(UNPLACED_SECONDS + 1)
    assert "Unschedulable 0/2 nodes" in late.trouble
    assert not late.unplaced


def test_a_stalled_roll_and_missing_workers() -> None:
    body = deployment("chat-worker", replicas=3, updatedReplicas=3, availableReplicas=1)
    condition = {
        "type": "Progressing",
        "status": "False",
        "reason": "ProgressDeadlineExceeded",
        "message": "stuck",
    }
    body["status"]["conditions"] = [condition]
    found = seen(body)
    assert (found.workers_available, found.workers_settled, found.stalled) == (1, False, "stuck")
    done = deployment("chat-worker", replicas=3, updatedReplicas=3, availableReplicas=3)
    assert seen(done).workers_settled


def test_a_pod_that_the_api_server_refuses() -> None:
    body = deployment("chat", replicas=5, updatedReplicas=3, availableReplicas=3)
    condition = {
        "type": "ReplicaFailure",
        "status": "True",
        "reason": "FailedCreate",
        "message": "exceeded quota",
    }
    body["status"]["conditions"] = [condition]
    assert seen(body).refused == "exceeded quota"
    body["status"]["conditions"] = [condition | {"status": "False"}]
    assert seen(body).refused == ""
