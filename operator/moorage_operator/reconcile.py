"""The pass: observe → gather → plan → apply → tell. Level-triggered: it may be run at any time, any number of times."""

from __future__ import annotations

import contextlib
import datetime
import logging
from typing import Any

from moorage_operator import gather, status
from moorage_operator.api import Body
from moorage_operator.apply import Contested, NameTaken, apply, remove, scale
from moorage_operator.context import Context, Memory
from moorage_operator.desired import children, labels
from moorage_operator.desired.inputs import Inputs
from moorage_operator.errors import ApiError, Forbidden, Invalid, NotFound, SpecError
from moorage_operator.events import emit
from moorage_operator.observe import UNPLACED_SECONDS, Observed, observe
from moorage_operator.plan import (
    EXTERNAL,
    MANAGED,
    NONE,
    SWITCHING,
    Plan,
    Render,
    Scale,
    Seen,
    held,
    plan,
)
from moorage_operator.resource import KIND, Resource, parse
from moorage_operator.status import Situation
from moorage_operator.store import key_of

log = logging.getLogger(__name__)

ASK_AGAIN_SECONDS = 5.0
"""[s] Between questions to a pod about an external Redis, only while it does not answer well."""
NEXT_STEP_SECONDS = 0.2
"""[s] Until the next pass when a step was over as soon as it was taken."""
CONTESTED_SECONDS = 30.0
"""[s] Until a contested child is written again."""
REMOVABLE = frozenset(
    (
        "Deployment",
        "StatefulSet",
        "Service",
        "ServiceAccount",
        "ConfigMap",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "HorizontalPodAutoscaler",
        "ServiceMonitor",
    )
)
"""Kinds of children that go when they are not wanted any more; of Secrets only the one with the URL does."""


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def reconcile(context: Context, namespace: str, name: str) -> float | None:
    """One pass over one object. Returns after how many seconds to look again unasked, or None.

    Raises :class:`ApiError` for what the queue's backoff cures (conflict, no answer, 429).
    """
    body = context.store.get(KIND, namespace, name)
    if body is None or body["metadata"].get("deletionTimestamp"):
        if body is None:
            context.forget(namespace, name)
            context.metrics.forget(namespace, name)
        return None
    try:
        resource = parse(body)
    except SpecError as error:
        before = body.get("status") or {}
        generation = body["metadata"].get("generation", 0)
        await _tell(context, body, status.invalid_status(generation, str(error), before, now()))
        return None
    memory = context.memory(namespace, name, resource.uid)
    return await Pass(context, memory, resource, body).run()


class Pass:
    """One pass over one object; lives as long as it takes."""

    def __init__(self, context: Context, memory: Memory, resource: Resource, body: Body) -> None:
        self.context, self.memory, self.resource, self.body = context, memory, resource, body
        self.observed: Observed = self._observe()
        self.problems: list[tuple[str, str]] = []
        self.warnings: list[tuple[str, str]] = []
        self.retry: ApiError | None = None
        self.again: float | None = None
        self.restarting = False

    def _observe(self) -> Observed:
        return observe(self.context.store, self.resource, datetime.datetime.now(datetime.UTC))

    async def run(self) -> float | None:
        resource, memory = self.resource, self.memory
        memory.served = memory.served or self.observed.deployment is not None
        found = await gather.gather(self.context, memory, resource, self.observed)
        self.problems += found.problems
        for secret in found.remade:
            await self._event(
                "Warning", "SecretRegenerated", f"Secret {secret} was deleted; a new one was made"
            )
        decision = self._decide(found)
        if decision.step in SWITCHING and not resource.spec.paused:
            # Orders matter here: look at the cluster itself, not at what the watches told last.
            await self._refresh()
            decision = self._decide(found)
        if not resource.spec.paused:
            await self._write(decision, found.inputs)
            self.observed = self._observe()
            after = self._decide(found)
            if decision.step in SWITCHING and after.step != decision.step:
                # A step that was taken is told, even if the cluster was so quick that nothing of it is left to see.
                self.again = NEXT_STEP_SECONDS
            else:
                decision = after
        await self._status(decision)
        if self.retry is not None:
            raise self.retry
        if self.observed.unplaced:
            self.again = min(self.again or UNPLACED_SECONDS, UNPLACED_SECONDS)
        return self.again

    # -- deciding --------------------------------------------------------------------------------------

    def _decide(self, found: gather.Gathered) -> Plan:
        observed, resource = self.observed, self.resource
        deployment = observed.deployment
        target = found.target
        if target is None:
            # The external URL cannot be read: stay on whatever external Redis is in use, or wait for it.
            current = deployment.backend if deployment else NONE
            target = current if current.startswith(EXTERNAL) else EXTERNAL
        usable = found.target is not None and not found.problems
        if target == MANAGED:
            usable = observed.redis_exists and observed.redis_ready
        seen = Seen(deployment, observed.pods, observed.redis_exists, usable)
        decision = plan(target, resource.wanted, seen)
        return held(decision, seen) if found.problems else decision

    async def _refresh(self) -> None:
        store, api, resource = self.context.store, self.context.api, self.resource
        name, namespace = labels.server_name(resource), resource.namespace
        deployment = await api.find("Deployment", namespace, name)
        if deployment is not None:
            store.put(deployment)
        elif known := store.get("Deployment", namespace, name):
            store.drop(known)
        pods = await api.list("Pod", namespace, labels.selector_text(resource, "server"))
        alive = {key_of(pod) for pod in pods}
        for pod in pods:
            store.put(pod)
        for known in store.pods(namespace, resource.name):
            component = known["metadata"]["labels"].get("app.kubernetes.io/component")
            if component == "server" and key_of(known) not in alive:
                store.drop(known)
        self.observed = self._observe()

    # -- writing ---------------------------------------------------------------------------------------

    async def _write(self, decision: Plan, inputs: Inputs) -> None:
        resource = self.resource
        monitors = True
        if resource.spec.metrics.service_monitor and resource.spec.metrics.enabled:
            monitors = await self.context.api.knows("ServiceMonitor")
        try:
            wanted = children(resource, decision, inputs, monitors=monitors)
        except ValueError as error:
            self.problems.append(("SpecInvalid", str(error)))
            return
        self._warn(monitors)
        await self._announce_restart(wanted, decision)
        await self._mark_emptiest(decision)
        for child in wanted:
            await self._attempt(apply(self.context, self.memory, resource, child), child)
        if isinstance(decision.server, Scale):
            name = labels.server_name(resource)
            await self._attempt(scale(self.context, resource, name, decision.server.replicas), None)
        await self._sweep(wanted, decision)
        if decision.keep_redis:
            why = await gather.grow_claim(self.context, self.memory, resource, self.observed)
            if why:
                remedy = "; make a claim of that size by hand (docs: failures/storage)"
                self.warnings.append(("StorageNotExpandable", why + remedy))

    async def _attempt(self, writing: Any, child: Body | None) -> None:
        """One child's failure must not keep the others from being written."""
        try:
            await writing
        except NameTaken as error:
            self.problems.append(("NameTaken", str(error)))
            self.again = CONTESTED_SECONDS
        except Contested as error:
            self.warnings.append(("Contested", str(error)))
            self.again = CONTESTED_SECONDS
        except Invalid as error:
            immutable = child is not None and child["kind"] == "StatefulSet"
            reason = "ImmutableFieldChanged" if immutable else "Refused"
            self.problems.append((reason, str(error)))
        except Forbidden as error:
            self.problems.append(("Forbidden", str(error)))
            self.again = CONTESTED_SECONDS
        except ApiError as error:
            self.retry = self.retry or error

    def _warn(self, monitors: bool) -> None:
        spec = self.resource.spec
        if not monitors:
            text = "spec.metrics.serviceMonitor is true, but the cluster has no ServiceMonitor (monitoring.coreos.com)"
            self.warnings.append(("ServiceMonitorUnknown", text))
        if spec.autoscaling is not None and not self.resource.clustered:
            text = "spec.autoscaling does nothing with spec.redis.mode Disabled: one replica is the most"
            self.warnings.append(("AutoscalingWithoutRedis", text))

    async def _announce_restart(self, wanted: list[Body], decision: Plan) -> None:
        """Before Redis is restarted: an Event, and RedisReady=False."""
        redis = next((child for child in wanted if child["kind"] == "StatefulSet"), None)
        before = self.observed.redis_template
        if redis is None or not before or redis["metadata"]["annotations"][labels.TEMPLATE] == before:
            return
        self.restarting = True
        text = (
            "the managed Redis is restarted for a change of its configuration, password, image or resources"
        )
        await self._event("Warning", "RedisRestarting", text)
        await self._status(decision)

    async def _mark_emptiest(self, decision: Plan) -> None:
        """Right before fewer replicas are asked for: tell Kubernetes which pods cost least to lose."""
        deployment = self.observed.deployment
        server = decision.server
        if (
            deployment is None
            or server is None
            or server.replicas >= deployment.replicas
            or not server.replicas
        ):
            return
        costs = await self.context.pods.deletion_costs(self.observed.addresses)
        for pod, cost in costs.items():
            patch = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": str(cost)}}}
            with contextlib.suppress(NotFound):
                await self.context.api.patch("Pod", self.resource.namespace, pod, patch)

    async def _sweep(self, wanted: list[Body], decision: Plan) -> None:
        names = {(child["kind"], child["metadata"]["name"]) for child in wanted}
        if not isinstance(decision.server, Render):
            names.add(("Deployment", labels.server_name(self.resource)))
            names.add(("Deployment", labels.worker_name(self.resource)))
        for child in self.context.store.owned(self.resource.uid):
            kind, name = child["kind"], child["metadata"]["name"]
            url = kind == "Secret" and name == labels.url_name(self.resource)
            if (kind in REMOVABLE or url) and (kind, name) not in names:
                await self._attempt(remove(self.context, self.memory, child), child)

    # -- telling ---------------------------------------------------------------------------------------

    async def _status(self, decision: Plan) -> None:
        found = Situation(
            observed=self.observed,
            plan=decision,
            redis=await self._redis(),
            problems=self.problems,
            warnings=self.warnings,
            draining=await self._draining(),
        )
        before = self.body.get("status") or {}
        self.body = await _tell(
            self.context, self.body, status.status_of(self.resource, found, before, now())
        )

    async def _redis(self) -> tuple[str, str, str] | None:
        mode, observed = self.resource.spec.redis.mode, self.observed
        immutable = next((text for reason, text in self.problems if reason == "ImmutableFieldChanged"), None)
        if mode == "Disabled":
            return None
        if mode == "Managed":
            if immutable:
                return ("False", "ImmutableFieldChanged", immutable)
            if self.restarting:
                return ("False", "RedisRestarting", "the managed Redis is being restarted")
            if observed.redis_ready:
                return ("True", "Answering", "the managed Redis answers")
            return ("False", "RedisNotReady", "the managed Redis does not answer yet")
        for reason, text in self.problems:
            if reason.startswith(("Secret", "RedisUrl")):
                return ("False", reason, text)
        deployment = observed.deployment
        if deployment is None or not deployment.backend.startswith(EXTERNAL):
            return ("Unknown", "NotInUseYet", "no server uses the external Redis yet")
        ready = {p.name for p in observed.pods if p.ready and not p.terminating}
        answers = [
            await self.context.pods.redis(address)
            for pod, address in observed.addresses.items()
            if pod in ready
        ]
        if True in answers:
            return ("True", "ReportedByServer", "a server reports that it reaches the external Redis")
        if self.resource.wanted:
            self.again = ASK_AGAIN_SECONDS
        if False in answers:
            return (
                "False",
                "ReportedByServer",
                "the servers report that they do not reach the external Redis",
            )
        return ("Unknown", "NotReported", "no server has told yet whether it reaches the external Redis")

    async def _draining(self) -> list[dict[str, Any]]:
        """Connections are asked for once, when a pod begins to go: asking on would be polling."""
        observed, memory = self.observed, self.memory
        known = {d["pod"]: d for d in (self.body.get("status") or {}).get("draining") or []}
        result = []
        for pod in sorted(observed.terminating):
            entry: dict[str, Any] = {"pod": pod, "since": observed.terminating[pod]}
            connections = known.get(pod, {}).get("connections", memory.draining.get(pod))
            if connections is None and pod not in memory.draining:
                address = self._address(pod)
                connections = await self.context.pods.connections(address) if address else None
            memory.draining[pod] = connections if connections is not None else -1
            if memory.draining[pod] >= 0:
                entry["connections"] = memory.draining[pod]
            result.append(entry)
        for pod in set(memory.draining) - set(observed.terminating):
            del memory.draining[pod]
        return result

    def _address(self, pod: str) -> str | None:
        body = self.context.store.get("Pod", self.resource.namespace, pod)
        return ((body or {}).get("status") or {}).get("podIP")

    async def _event(self, kind: str, reason: str, message: str) -> None:
        await emit(self.context, self.body, kind, reason, message)


async def _tell(context: Context, body: Body, after: dict[str, Any]) -> Body:
    """Write the status if it says something new, and an Event for each transition. Returns the newer object."""
    metadata = body["metadata"]
    before = body.get("status") or {}
    context.metrics.conditions(metadata["namespace"], metadata["name"], after["conditions"])
    if before == after:
        return body
    intent = {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "status": after,
    }
    try:
        written = await context.api.apply(intent, "status")
    except NotFound:
        return body
    context.store.put(written)
    for kind, reason, message in status.transitions(before, after):
        await emit(context, written, kind, reason, message)
    return written
