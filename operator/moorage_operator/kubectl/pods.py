"""Pods of a RealtimeServer as rows: what each is doing, in a word. Pure."""

from __future__ import annotations

import datetime
from typing import Any

from moorage_operator.kubectl.cluster import Body, Cluster
from moorage_operator.kubectl.scrape import Scrape
from moorage_operator.kubectl.text import age, moment

COMPONENTS = ("server", "worker", "redis")
NAME, INSTANCE, COMPONENT = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
)


def labels(pod: Body) -> dict[str, str]:
    found: dict[str, str] = pod["metadata"].get("labels") or {}
    return found


def component(pod: Body) -> str:
    return labels(pod).get(COMPONENT, "")


def pods_of(cluster: Cluster, namespace: str, name: str) -> list[Body]:
    """Pods of one object: servers, workers, Redis, each by name."""
    found = cluster.all("Pod", namespace, f"{NAME}=moorage,{INSTANCE}={name}")
    known = [pod for pod in found if component(pod) in COMPONENTS]
    return sorted(known, key=lambda pod: (COMPONENTS.index(component(pod)), pod["metadata"]["name"]))


def is_ready(pod: Body) -> bool:
    conditions: list[dict[str, Any]] = (pod.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def containers(pod: Body) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or []
    return found


def restarts(pod: Body) -> int:
    return sum(container.get("restartCount", 0) for container in containers(pod))


def version(pod: Body) -> str:
    """Tag of the first container's image, or its digest, shortened."""
    image = (pod["spec"].get("containers") or [{}])[0].get("image", "")
    last = image.rsplit("/", 1)[-1]
    if "@" in last:
        return str(last.split("@", 1)[1][:19])
    return str(last.partition(":")[2] or "latest")


def state(pod: Body, scrape: Scrape | None, now: datetime.datetime) -> str:
    """One word (and since when, for a pod that is going)."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    if metadata.get("deletionTimestamp"):
        return f"draining {age(_asked_to_go(pod), now)}".strip()
    phase = str(status.get("phase", "Unknown"))
    if phase in ("Succeeded", "Failed", "Unknown"):
        return str(status.get("reason") or phase)
    for container in containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            return str(waiting["reason"])
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("reason", "Pending"))
    if scrape is not None and scrape.draining:
        return "draining" if scrape.draining == 1 else "drained"
    return "serving" if is_ready(pod) else ("not ready" if phase == "Running" else phase)


def _asked_to_go(pod: Body) -> str | None:
    """``deletionTimestamp`` is the end of the grace, so the grace is taken off."""
    end = moment(pod["metadata"].get("deletionTimestamp"))
    if end is None:
        return None
    grace = pod["metadata"].get("deletionGracePeriodSeconds") or 0
    return (end - datetime.timedelta(seconds=grace)).isoformat()


def trouble(pod: Body) -> str:
    """Why it does not run, in the kubelet's or the scheduler's words; empty when it does."""
    for container in containers(pod):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("message") and waiting.get("reason") != "ContainerCreating":
            return str(waiting["message"])[:300]
    for condition in (pod.get("status") or {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))[:300]
    return ""


HEADER = ("POD", "STATE", "READY", "CONNECTIONS", "CALLS", "VERSION", "RESTARTS", "NODE", "AGE")


def row(pod: Body, scrape: Scrape | None, now: datetime.datetime) -> tuple[str, ...]:
    """Cells under :data:`HEADER`; unknown is empty."""
    metadata = pod["metadata"]
    return (
        metadata["name"],
        state(pod, scrape, now),
        "yes" if is_ready(pod) else "no",
        _number(scrape.connections if scrape else None),
        _number(scrape.calls if scrape else None),
        version(pod),
        str(restarts(pod)),
        pod["spec"].get("nodeName", ""),
        age(metadata.get("creationTimestamp"), now),
    )


def _number(value: int | None) -> str:
    return "" if value is None else str(value)
