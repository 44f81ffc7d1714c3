"""The truth about an object, from what is observed: conditions, counts, and the Events of their changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moorage_operator.desired import labels
from moorage_operator.observe import Observed
from moorage_operator.plan import SWITCHING, Plan, Render, Scale, Step
from moorage_operator.resource import Resource

Condition = dict[str, Any]

STEP_TEXT: dict[Step, str] = {
    Step.PAUSED: "spec.paused is true: nothing is written or repaired",
    Step.WAITING_FOR_REDIS: "waiting until the wanted Redis can be used; the servers stay as they are",
    Step.WAITING_FOR_INPUTS: "waiting for a Secret or ConfigMap; the servers stay as they are",
    Step.SCALING_DOWN: "going down to one replica before REDIS_URL changes",
    Step.ROLLING_ONTO_REDIS: "replacing the one replica by one with the new REDIS_URL",
    Step.ROLLING_OFF_REDIS: "replacing the one replica by one without REDIS_URL",
    Step.SCALING_UP: "all on the same Redis; going up to the wanted replicas",
    Step.REMOVING_REDIS: "no server uses the managed Redis any more; it is being removed",
    Step.REPLACING_PODS: "waiting until pods with another REDIS_URL are gone",
    Step.ROLLING_OUT: "the Deployment is rolling",
    Step.SETTLED: "nothing to do",
}


@dataclass(slots=True)
class Situation:
    """What a pass found out."""

    observed: Observed
    plan: Plan | None = None
    redis: tuple[str, str, str] | None = None
    """(status, reason, message) of RedisReady; None: absent"""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """(reason, message), the first is shown as Degraded"""
    warnings: list[tuple[str, str]] = field(default_factory=list)
    draining: list[dict[str, Any]] = field(default_factory=list)


def status_of(resource: Resource, found: Situation, before: dict[str, Any], now: str) -> dict[str, Any]:
    """The whole status. ``before`` is the present one, ``now`` the time (RFC 3339) of changed conditions."""
    conditions = [
        _ready(resource, found),
        _available(resource, found),
        _progressing(resource, found),
        _degraded(found),
    ]
    if found.redis is not None:
        conditions.append(_condition("RedisReady", *found.redis))
    if found.warnings:
        text = "; ".join(message for _, message in found.warnings)
        conditions.append(_condition("ConfigurationWarning", "True", found.warnings[0][0], text))
    redis: dict[str, Any] = {"mode": resource.spec.redis.mode}
    if found.redis is not None:
        redis["ready"] = found.redis[0] == "True"
    return {
        "observedGeneration": resource.generation,
        "replicas": found.observed.alive,
        "readyReplicas": found.observed.ready,
        "selector": labels.selector_text(resource, "server"),
        "mode": _mode(resource, found),
        "endpoint": resource.endpoint,
        "redis": redis,
        "draining": found.draining,
        "conditions": stamped(conditions, before, resource.generation, now),
    }


def invalid_status(generation: int, message: str, before: dict[str, Any], now: str) -> dict[str, Any]:
    """Of an object that cannot be understood: what was true of its children stays as it was."""
    kept = [
        c for c in before.get("conditions") or [] if c["type"] in ("Available", "RedisReady", "Progressing")
    ]
    changed = [
        _condition("Ready", "False", "SpecInvalid", message),
        _condition("Degraded", "True", "SpecInvalid", message),
    ]
    rest = {k: v for k, v in before.items() if k not in ("conditions", "observedGeneration")}
    conditions = stamped(changed, before, generation, now) + kept
    return {**rest, "observedGeneration": generation, "conditions": conditions}


def stamped(
    conditions: list[Condition], before: dict[str, Any], generation: int, now: str
) -> list[Condition]:
    """With generation and time; the time is that of the last change of ``status``, not of a reason."""
    known = {c["type"]: c for c in before.get("conditions") or []}
    result = []
    for condition in conditions:
        old = known.get(condition["type"])
        same = old is not None and old["status"] == condition["status"]
        time = old["lastTransitionTime"] if same and old is not None else now
        result.append({**condition, "observedGeneration": generation, "lastTransitionTime": time})
    return result


def _condition(kind: str, status: str, reason: str, message: str) -> Condition:
    return {"type": kind, "status": status, "reason": reason, "message": message[:2000]}


def wanted_now(resource: Resource, found: Situation) -> int:
    """Server replicas that the present step wants."""
    server = found.plan.server if found.plan else None
    return server.replicas if isinstance(server, (Render, Scale)) else resource.wanted


def _ready(resource: Resource, found: Situation) -> Condition:
    ready, wanted = found.observed.ready, resource.wanted
    step = found.plan.step if found.plan else Step.ROLLING_OUT
    if found.problems:
        reason, message = found.problems[0]
        return _condition("Ready", "False", reason, message)
    if step not in (Step.SETTLED, Step.PAUSED):
        return _condition(
            "Ready", "False", step, f"{STEP_TEXT[step]}; {ready} of {wanted} replicas are ready"
        )
    if found.redis is not None and found.redis[0] != "True" and wanted:
        return _condition("Ready", "False", found.redis[1], found.redis[2])
    workers = resource.spec.worker.replicas
    if found.observed.workers_available != workers or not found.observed.workers_settled:
        seen = found.observed.workers_available
        return _condition("Ready", "False", "WorkersNotReady", f"{seen} of {workers} workers are available")
    if ready != wanted:
        return _condition("Ready", "False", "ReplicasNotReady", f"{ready} of {wanted} replicas are ready")
    if wanted == 0:
        return _condition("Ready", "True", "ScaledToZero", "no replicas are wanted and none run")
    return _condition("Ready", "True", "AllReplicasReady", f"{ready} of {wanted} replicas are ready")


def _available(resource: Resource, found: Situation) -> Condition:
    ready = found.observed.ready
    if resource.spec.replicas == 0 and ready == 0:
        return _condition("Available", "False", "ScaledToZero", "spec.replicas is 0: nobody serves")
    if ready == 0:
        detail = found.observed.trouble or "no replica is ready"
        return _condition("Available", "False", "NoReplicaReady", detail)
    if not resource.clustered and resource.spec.replicas > 1:
        text = (
            f"{ready} replica runs, spec.replicas is {resource.spec.replicas}: more than one needs Redis "
            "(spec.redis.mode is Disabled)"
        )
        return _condition("Available", "True", "SingleReplicaWithoutRedis", text)
    text = f"{ready} of {resource.wanted} replicas are ready"
    if wanted_now(resource, found) == 1 and resource.spec.disruption.mode == "Auto":
        text += "; no PodDisruptionBudget at one replica (it would block every node drain)"
    return _condition("Available", "True", "ReplicasReady", text)


def _progressing(resource: Resource, found: Situation) -> Condition:
    if resource.spec.paused:
        return _condition("Progressing", "False", Step.PAUSED, STEP_TEXT[Step.PAUSED])
    step = found.plan.step if found.plan else Step.ROLLING_OUT
    status = "False" if step is Step.SETTLED else "True"
    text = STEP_TEXT[step]
    if step is Step.ROLLING_OUT:
        text += f": {found.observed.ready} of {wanted_now(resource, found)} replicas are ready"
    return _condition("Progressing", status, step, text)


def _degraded(found: Situation) -> Condition:
    if found.problems:
        reason = found.problems[0][0]
        return _condition("Degraded", "True", reason, "; ".join(message for _, message in found.problems))
    if found.observed.stalled:
        text = f"{found.observed.stalled} {found.observed.refused or found.observed.trouble}".strip()
        return _condition("Degraded", "True", "ProgressDeadlineExceeded", text)
    if found.observed.refused:
        return _condition("Degraded", "True", "PodsRefused", found.observed.refused)
    if found.observed.trouble:
        return _condition("Degraded", "True", "PodsFailing", found.observed.trouble)
    return _condition("Degraded", "False", "AsExpected", "no problem is known")


def _mode(resource: Resource, found: Situation) -> str:
    step = found.plan.step if found.plan else Step.SETTLED
    if step in SWITCHING and found.observed.deployment is not None:
        return "Switching"
    return "Clustered" if resource.clustered else "SingleReplica"


def transitions(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, str]]:
    """(type, reason, message) of the Events that a change of status is worth."""
    old = {c["type"]: c for c in before.get("conditions") or []}
    events = []
    for condition in after.get("conditions") or []:
        kind, known = condition["type"], old.get(condition["type"], {})
        changed = (known.get("status"), known.get("reason")) != (condition["status"], condition["reason"])
        if not changed:
            continue
        if kind == "Progressing":
            events.append(("Normal", condition["reason"], condition["message"]))
        elif kind in ("Degraded", "ConfigurationWarning") and condition["status"] == "True":
            events.append(("Warning", condition["reason"], condition["message"]))
        elif kind == "Ready" and condition["status"] == "True":
            events.append(("Normal", "Ready", condition["message"]))
    return events
