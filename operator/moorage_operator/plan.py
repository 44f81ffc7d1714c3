"""The ordered switching of ``REDIS_URL``: what is seen → the next step. Values only, no memory.

A *backend* is what a server pod was started with: nothing, the managed Redis, or one external Redis. Two pods of
different backends do not know each other, so pods of two backends are never run side by side, and without a
backend there is never more than one pod. The whole state stands in the cluster: the Deployment's pod template
carries its backend, and a Deployment that has one while its strategy is still ``Recreate`` is in the middle of
a switch. So it does not matter when the operator dies.

on:     WaitingForRedis → RollingOntoRedis (one replica, Recreate) → ScalingUp → Settled
off:    ScalingDown → RollingOffRedis (one replica, Recreate) → RemovingRedis → Settled
other:  WaitingForRedis → ScalingDown → RollingOntoRedis → ScalingUp (a managed Redis goes now) → Settled
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

NONE = ""
MANAGED = "managed"
EXTERNAL = "external:"
"""Prefix; what follows tells one external Redis from another."""


class Step(StrEnum):
    """Reason of the Progressing condition."""

    PAUSED = "Paused"
    WAITING_FOR_REDIS = "WaitingForRedis"
    WAITING_FOR_INPUTS = "WaitingForInputs"
    SCALING_DOWN = "ScalingDown"
    ROLLING_ONTO_REDIS = "RollingOntoRedis"
    ROLLING_OFF_REDIS = "RollingOffRedis"
    SCALING_UP = "ScalingUp"
    REMOVING_REDIS = "RemovingRedis"
    REPLACING_PODS = "ReplacingPods"
    ROLLING_OUT = "RollingOut"
    SETTLED = "Settled"


SWITCHING = frozenset(Step) - {Step.PAUSED, Step.WAITING_FOR_INPUTS, Step.ROLLING_OUT, Step.SETTLED}
"""Steps of a switch: ``status.mode`` is Switching meanwhile."""


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A server pod."""

    name: str
    backend: str
    ready: bool
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class DeploymentSeen:
    """The server's Deployment: from ``spec`` the first three, from ``status`` the rest."""

    backend: str
    replicas: int
    recreate: bool
    settled: bool
    """Its controller has seen this generation."""
    alive: int = 0
    """Pods that are not terminating."""
    updated: int = 0
    available: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What the plan is made from."""

    deployment: DeploymentSeen | None = None
    pods: tuple[PodSeen, ...] = ()
    managed_exists: bool = False
    """A managed Redis is there, or what is left of it."""
    usable: bool = False
    """The Redis that is wanted can be used now."""


@dataclass(frozen=True, slots=True)
class Render:
    """Write the whole Deployment."""

    backend: str
    replicas: int
    recreate: bool


@dataclass(frozen=True, slots=True)
class Scale:
    """Touch nothing but the Deployment's replicas: its pod template stays as it is (a new one would roll twice)."""

    replicas: int


@dataclass(frozen=True, slots=True)
class Plan:
    step: Step
    server: Render | Scale | None
    """None: there is no Deployment, and none is to be made yet."""
    keep_redis: bool
    """The managed Redis is to be there."""


def rolled(deployment: DeploymentSeen, wanted: int) -> bool:
    """Only pods of the present template are left, and one serves (if any is wanted)."""
    least = min(wanted, 1)
    return (
        deployment.settled
        and deployment.updated == deployment.alive
        and deployment.alive >= least
        and deployment.available >= least
    )


def complete(deployment: DeploymentSeen, replicas: int) -> bool:
    """All that is wanted is there, available, and nothing else."""
    return deployment.settled and deployment.updated == deployment.alive == deployment.available == replicas


def plan(target: str, wanted: int, seen: Seen) -> Plan:
    """The next step towards ``wanted`` replicas (≥ 0) on backend ``target``.

    Repeating it with the same ``seen`` repeats the same step; applying its result and looking again gets on.
    """
    now = seen.deployment
    if target == NONE:
        wanted = min(wanted, 1)
    others = any(p.backend != target and not p.terminating for p in seen.pods)
    done = now is not None and now.backend == target and rolled(now, wanted) and not others
    keep = target == MANAGED or (seen.managed_exists and not done)

    def step(what: Step, server: Render | Scale | None) -> Plan:
        return Plan(what, server, keep)

    if now is None:
        if target != NONE and not seen.usable:
            return step(Step.WAITING_FOR_REDIS, None)
        if others:
            return step(Step.REPLACING_PODS, None)
        return step(Step.ROLLING_OUT, Render(target, wanted, recreate=target == NONE))

    if now.backend != target:
        return step(*_leave(now, target, wanted, seen))
    if target == NONE:
        server = Render(NONE, wanted, recreate=True)
        if not done and (others or seen.managed_exists):
            return step(Step.ROLLING_OFF_REDIS, server)
        return _arrived(now, server, seen, keep)
    if now.recreate and now.replicas <= 1 and not done:
        return step(Step.ROLLING_ONTO_REDIS, Render(target, min(wanted, 1), recreate=True))
    server = Render(target, wanted, recreate=False)
    if now.recreate and wanted > 1:
        return step(Step.SCALING_UP, server)
    return _arrived(now, server, seen, keep)


def held(decision: Plan, seen: Seen) -> Plan:
    """The same, but no new pod template: something that pods read is missing, and a roll would only break them."""
    now, server = seen.deployment, decision.server
    if not isinstance(server, Render):
        return decision
    if now is None:
        return Plan(Step.WAITING_FOR_INPUTS, None, decision.keep_redis)
    same = now.backend == server.backend and now.recreate == server.recreate
    return Plan(
        Step.WAITING_FOR_INPUTS, Scale(server.replicas if same else now.replicas), decision.keep_redis
    )


def _leave(now: DeploymentSeen, target: str, wanted: int, seen: Seen) -> tuple[Step, Render | Scale]:
    """The Deployment is still on another backend."""
    if now.backend == NONE and now.replicas > 1 and target != NONE and seen.usable:
        # Never our doing (a rollout undone by hand, say): put back at once, do not wait with many islands.
        return Step.ROLLING_OUT, Render(target, wanted, recreate=False)
    if target != NONE and not seen.usable:
        steady = now.replicas if now.recreate else wanted
        return Step.WAITING_FOR_REDIS, Scale(min(steady, 1) if now.backend == NONE else steady)
    least = min(wanted, 1)
    serving = sum(p.ready and not p.terminating for p in seen.pods)
    if now.replicas > 1 or not now.settled or now.alive > 1 or serving > 1:
        return Step.SCALING_DOWN, Scale(min(now.replicas, 1))
    off = target == NONE
    return (Step.ROLLING_OFF_REDIS if off else Step.ROLLING_ONTO_REDIS), Render(target, least, recreate=True)


def _arrived(now: DeploymentSeen, server: Render, seen: Seen, keep: bool) -> Plan:
    """On the right backend, nothing to order any more."""
    if not complete(now, server.replicas) or now.replicas != server.replicas:
        return Plan(Step.ROLLING_OUT, server, keep)
    if seen.managed_exists and not keep:
        return Plan(Step.REMOVING_REDIS, server, keep)
    return Plan(Step.SETTLED, server, keep)
