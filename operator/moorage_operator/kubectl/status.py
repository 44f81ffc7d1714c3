"""``kubectl moorage status``: conditions with their reasons, every pod with its connections, Redis, the budget."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

from moorage_operator.errors import ApiError
from moorage_operator.kubectl import pods
from moorage_operator.kubectl.cluster import Body, Cluster
from moorage_operator.kubectl.scrape import Scrape, scrape_all
from moorage_operator.kubectl.text import age, fields, table

GOOD = {"Ready": "True", "Available": "True", "RedisReady": "True", "Degraded": "False"}
"""Status of a condition that needs nobody; the others are news, not trouble."""


@dataclass(slots=True)
class Picture:
    """One object and what belongs to it, as fetched."""

    body: Body
    pods: list[Body] = field(default_factory=list)
    scrapes: dict[str, Scrape] = field(default_factory=dict)
    budget: Body | None = None
    claim: Body | None = None
    notes: list[str] = field(default_factory=list)
    """What could not be fetched, and why."""


def look(cluster: Cluster, body: Body) -> Picture:
    """Fetch it. Only pods are needed: what else is refused becomes a note."""
    namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
    picture = Picture(body, pods.pods_of(cluster, namespace, name))
    servers = [pod for pod in picture.pods if pods.component(pod) != "redis"]
    if _spec(body, "metrics").get("enabled", True):
        picture.scrapes = scrape_all(cluster, servers)
    else:
        picture.notes.append("spec.metrics.enabled is false: connections and calls are not known")
    errors = sorted({scrape.error for scrape in picture.scrapes.values() if scrape.error})
    picture.notes += [f"connections of some pods are not known: {error}" for error in errors]
    for kind, child in (("PodDisruptionBudget", name), ("PersistentVolumeClaim", f"data-{name}-redis-0")):
        try:
            found = cluster.find(kind, namespace, child)
        except ApiError as error:
            picture.notes.append(f"{kind}: {error}")
            continue
        if kind == "PodDisruptionBudget":
            picture.budget = found
        else:
            picture.claim = found
    return picture


def healthy(body: Body) -> bool:
    """Ready for the present generation."""
    status = body.get("status") or {}
    ready = next((c for c in status.get("conditions") or [] if c["type"] == "Ready"), None)
    return ready is not None and ready["status"] == "True" and not _unseen(body)


def render(picture: Picture, now: datetime.datetime) -> list[str]:
    """Lines for a terminal."""
    body = picture.body
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    image = spec.get("image", "")
    lines = [
        f"{metadata['namespace']}/{metadata['name']}   {image}   {age(metadata.get('creationTimestamp'), now)}"
    ]
    if _unseen(body):
        lines += [
            f"  ! the operator has seen generation {status.get('observedGeneration', 'none')}, "
            f"the spec is at {metadata.get('generation')}: what follows is old. "
            "Is it running?  kubectl -n moorage-system get pods"
        ]
    lines += ["", *_conditions(status.get("conditions") or [], now), ""]
    lines += [*fields(_facts(picture)), ""]
    if picture.pods:
        rows = [pods.row(pod, picture.scrapes.get(pod["metadata"]["name"]), now) for pod in picture.pods]
        lines += table(pods.HEADER, rows)
    else:
        lines += ["no pods"]
    for pod in picture.pods:
        if text := pods.trouble(pod):
            lines.append(f"  ! {pod['metadata']['name']}: {text}")
    lines += [f"  note: {note}" for note in picture.notes]
    return lines


def _unseen(body: Body) -> bool:
    seen = (body.get("status") or {}).get("observedGeneration", 0)
    return bool(seen < body["metadata"].get("generation", 0))


def _conditions(conditions: list[dict[str, Any]], now: datetime.datetime) -> list[str]:
    if not conditions:
        return ["no conditions: the operator has not looked at this object yet"]
    rows = []
    for condition in conditions:
        kind = condition["type"]
        good = GOOD.get(kind, condition["status"]) == condition["status"] and kind != "ConfigurationWarning"
        rows.append(
            (
                kind,
                condition["status"] if good else f"{condition['status']} !",
                condition.get("reason", ""),
                age(condition.get("lastTransitionTime"), now),
                condition.get("message", ""),
            )
        )
    return table(("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE"), rows)


def _facts(picture: Picture) -> list[tuple[str, str]]:
    status, spec = picture.body.get("status") or {}, picture.body.get("spec") or {}
    replicas = f"{status.get('readyReplicas', 0)} ready of {spec.get('replicas', '?')}"
    known = [scrape.connections for scrape in picture.scrapes.values() if scrape.connections is not None]
    going = ", ".join(
        f"{entry['pod']} ({entry.get('connections', '?')} connections at its start)"
        for entry in status.get("draining") or []
    )
    return [
        ("Mode", str(status.get("mode", "unknown"))),
        ("Replicas", replicas + (", paused" if spec.get("paused") else "")),
        ("Connections", f"{sum(known)} on {len(known)} pods" if known else ""),
        ("Draining", going),
        ("Endpoint", str(status.get("endpoint", ""))),
        ("Redis", _redis(picture)),
        ("Budget", _budget(picture)),
    ]


def _redis(picture: Picture) -> str:
    status = picture.body.get("status") or {}
    mode = _spec(picture.body, "redis").get("mode", "unknown")
    if mode == "Disabled":
        return "Disabled: one replica, everything in memory"
    ready = (status.get("redis") or {}).get("ready")
    known = "not known to be ready" if ready is None else ("ready" if ready else "not ready")
    parts = [mode, known]
    if picture.claim is not None:
        claim = picture.claim
        size = ((claim.get("status") or {}).get("capacity") or {}).get("storage", "no size yet")
        phase = (claim.get("status") or {}).get("phase", "?")
        parts.append(f"claim {claim['metadata']['name']} {phase}, {size}")
    return ", ".join(parts)


def _budget(picture: Picture) -> str:
    if picture.budget is None:
        return "none: no eviction of a server is refused"
    status = picture.budget.get("status") or {}
    allowed = status.get("disruptionsAllowed", 0)
    return (
        f"{allowed} eviction{'' if allowed == 1 else 's'} allowed now "
        f"({status.get('currentHealthy', 0)} healthy, {status.get('desiredHealthy', 0)} must stay)"
    )


def _spec(body: Body, part: str) -> dict[str, Any]:
    found: dict[str, Any] = (body.get("spec") or {}).get(part) or {}
    return found
