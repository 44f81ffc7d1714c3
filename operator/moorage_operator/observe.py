"""Children as values: from what the store holds to what the plan and the status judge by."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moorage_operator.desired import labels
from moorage_operator.plan import NONE, DeploymentSeen, PodSeen
from moorage_operator.resource import Resource
from moorage_operator.store import Body, Store

TROUBLE = frozenset(
    {
        "CrashLoopBackOff",
        "ImagePullBackOff",
        "ErrImagePull",
        "ErrImageNeverPull",
        "InvalidImageName",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    }
)
"""Reasons of a waiting container that do not pass by waiting."""
UNPLACED_SECONDS = 30.0
"""[s] A pod without a node for less is no trouble: its claim is being bound, or a node is being made."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything seen of one object's children."""

    deployment: DeploymentSeen | None = None
    pods: tuple[PodSeen, ...] = ()
    addresses: dict[str, str] = field(default_factory=dict)
    """pod → IP, of pods that have one and are not terminating"""
    terminating: dict[str, str] = field(default_factory=dict)
    """pod → when its deletion was asked for, RFC 3339"""
    trouble: str = ""
    """The first pod problem that waiting does not cure, as a sentence; empty: none."""
    unplaced: bool = False
    """A pod waits for a node, not yet long enough to call it trouble."""
    stalled: str = ""
    """Message of Progressing=False/ProgressDeadlineExceeded of a Deployment; empty: none."""
    refused: str = ""
    """Message of ReplicaFailure of a Deployment: a pod that a quota, limit range or policy refuses; empty: none."""
    redis_exists: bool = False
    redis_ready: bool = False
    redis_template: str = ""
    redis_storage: str | None = None
    workers_available: int = 0
    workers_settled: bool = True

    @property
    def ready(self) -> int:
        """Server pods that are ready and not terminating."""
        return sum(pod.ready and not pod.terminating for pod in self.pods)

    @property
    def alive(self) -> int:
        return sum(not pod.terminating for pod in self.pods)


def observe(store: Store, resource: Resource, now: datetime.datetime) -> Observed:
    """The present state of the children of ``resource``."""
    namespace = resource.namespace
    server = _mine(store.get("Deployment", namespace, labels.server_name(resource)), resource)
    worker = _mine(store.get("Deployment", namespace, labels.worker_name(resource)), resource)
    redis = _mine(store.get("StatefulSet", namespace, labels.redis_name(resource)), resource)
    everything = store.pods(namespace, resource.name)
    servers = [pod for pod in everything if _component(pod) == "server" and _replicated(pod)]
    status = (redis or {}).get("status") or {}
    seen_redis = redis is not None and _settled(redis)
    templates = ((redis or {}).get("spec") or {}).get("volumeClaimTemplates") or [{}]
    return Observed(
        deployment=_deployment(server) if server else None,
        pods=tuple(_pod(pod) for pod in servers if not _ended(pod)),
        addresses={
            pod["metadata"]["name"]: pod["status"]["podIP"]
            for pod in servers
            if (pod.get("status") or {}).get("podIP") and not pod["metadata"].get("deletionTimestamp")
        },
        terminating={
            pod["metadata"]["name"]: pod["metadata"]["deletionTimestamp"]
            for pod in servers
            if pod["metadata"].get("deletionTimestamp")
        },
        trouble=next((text for pod in everything if (text := _trouble(pod, now))), ""),
        unplaced=any(_unschedulable(pod) and _age(pod, now) < UNPLACED_SECONDS for pod in everything),
        stalled=_first(server, worker, _stalled),
        refused=_first(server, worker, _refused),
        redis_exists=redis is not None,
        redis_ready=seen_redis
        and status.get("readyReplicas", 0) >= 1
        and status.get("updateRevision") == status.get("currentRevision", status.get("updateRevision")),
        redis_template=((redis or {}).get("metadata", {}).get("annotations") or {}).get(labels.TEMPLATE, ""),
        redis_storage=((templates[0].get("spec") or {}).get("resources") or {})
        .get("requests", {})
        .get("storage"),
        workers_available=((worker or {}).get("status") or {}).get("availableReplicas", 0),
        workers_settled=worker is None or _rolled(worker),
    )


def _mine(body: Body | None, resource: Resource) -> Body | None:
    """A namesake of an earlier owner that is still being collected is not ours."""
    if body is None or body["metadata"].get("deletionTimestamp"):
        return None
    owners = {owner["uid"] for owner in body["metadata"].get("ownerReferences") or []}
    return body if resource.uid in owners else None


def _settled(body: Body) -> bool:
    return bool(
        (body.get("status") or {}).get("observedGeneration", 0) >= body["metadata"].get("generation", 0)
    )


def _rolled(body: Body) -> bool:
    status, wanted = body.get("status") or {}, body["spec"].get("replicas", 1)
    counts = {status.get(k, 0) for k in ("replicas", "updatedReplicas", "availableReplicas")}
    return _settled(body) and counts == {wanted}


def _deployment(body: Body) -> DeploymentSeen:
    spec, status = body["spec"], body.get("status") or {}
    annotations = spec["template"]["metadata"].get("annotations") or {}
    return DeploymentSeen(
        backend=annotations.get(labels.BACKEND, NONE),
        replicas=spec.get("replicas", 1),
        recreate=(spec.get("strategy") or {}).get("type") == "Recreate",
        settled=_settled(body),
        alive=status.get("replicas", 0),
        updated=status.get("updatedReplicas", 0),
        available=status.get("availableReplicas", 0),
    )


def _component(body: Body) -> str:
    return str((body["metadata"].get("labels") or {}).get("app.kubernetes.io/component", ""))


def _replicated(body: Body) -> bool:
    """Made by a ReplicaSet: a bare pod with our labels is somebody's experiment."""
    return any(owner.get("kind") == "ReplicaSet" for owner in body["metadata"].get("ownerReferences") or [])


def _ended(body: Body) -> bool:
    return (body.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _pod(body: Body) -> PodSeen:
    metadata = body["metadata"]
    conditions: list[dict[str, Any]] = (body.get("status") or {}).get("conditions") or []
    return PodSeen(
        name=metadata["name"],
        backend=(metadata.get("annotations") or {}).get(labels.BACKEND, NONE),
        ready=any(c["type"] == "Ready" and c["status"] == "True" for c in conditions),
        terminating=bool(metadata.get("deletionTimestamp")),
    )


def _trouble(body: Body, now: datetime.datetime) -> str:
    if body["metadata"].get("deletionTimestamp"):
        return ""
    status, name = body.get("status") or {}, body["metadata"]["name"]
    for container in status.get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in TROUBLE:
            detail = waiting.get("message", "")
            last = ((container.get("lastState") or {}).get("terminated") or {}).get("exitCode")
            ended = f" (last exit code {last})" if last is not None else ""
            return f"pod {name}: {waiting['reason']}{ended} {detail}".strip()[:300]
    text = _unschedulable(body)
    return f"pod {name}: {text}"[:300] if text and _age(body, now) >= UNPLACED_SECONDS else ""


def _unschedulable(body: Body) -> str:
    if _pod(body).ready:
        return ""
    for condition in (body.get("status") or {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return f"Unschedulable {condition.get('message', '')}".strip()
    return ""


def _age(body: Body, now: datetime.datetime) -> float:
    """[s] Since it was created."""
    stamp = body["metadata"].get("creationTimestamp")
    return (now - datetime.datetime.fromisoformat(stamp)).total_seconds() if stamp else 0.0


def _first(server: Body | None, worker: Body | None, tell: Callable[[Body], str]) -> str:
    return next((text for body in (server, worker) if body and (text := tell(body))), "")


def _stalled(body: Body) -> str:
    for condition in (body.get("status") or {}).get("conditions") or []:
        if condition["type"] == "Progressing" and condition.get("reason") == "ProgressDeadlineExceeded":
            return str(condition.get("message", "a roll-out does not get on"))
    return ""


def _refused(body: Body) -> str:
    for condition in (body.get("status") or {}).get("conditions") or []:
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return str(condition.get("message", "a pod cannot be created"))
    return ""
