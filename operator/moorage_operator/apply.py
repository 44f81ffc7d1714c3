"""Writing children: server-side apply when something is to be written, and not otherwise."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import deque
from typing import Any

from moorage_operator.api import Body
from moorage_operator.context import Context, Memory
from moorage_operator.errors import Conflict, Invalid, OperatorError
from moorage_operator.resource import KIND, RESERVED_ENV, Resource
from moorage_operator.store import content, owner_of

log = logging.getLogger(__name__)

FIGHT_COUNT, FIGHT_SECONDS = 5, 30.0
"""[repairs, s] Somebody else writes the same field: more repairs than this in that time are left out."""


class NameTaken(OperatorError):
    """An object of this name is there and belongs to somebody else."""


class Contested(OperatorError):
    """Somebody else keeps changing what the operator sets."""


def digest(body: Body) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


async def apply(context: Context, memory: Memory, resource: Resource, wanted: Body) -> bool:
    """Make the child be as ``wanted``; True if it was written.

    Nothing is sent when neither the intent nor the child has changed since the last write. What the child has
    beyond the intent stays, but for reserved variables and selector labels. Raises :class:`NameTaken`,
    :class:`Contested`, or what the API server says.
    """
    kind, metadata = wanted["kind"], wanted["metadata"]
    key, intent = (kind, metadata["name"]), digest(wanted)
    known = context.store.get(kind, metadata["namespace"], metadata["name"])
    if known is None:
        known = await context.api.find(kind, metadata["namespace"], metadata["name"])
    if known is not None:
        _check_owner(context, known, resource)
        before = memory.applied.get(key)
        if before == (intent, content(known)):
            return False
        if before is not None and before[0] == intent:
            _note_repair(memory, key)
    written = await _write(context, wanted, known)
    if patch := excess(wanted, written):
        written = await context.api.patch(
            kind, metadata["namespace"], metadata["name"], patch, how="strategic-merge"
        )
    written = {"apiVersion": wanted["apiVersion"], "kind": kind, **written}
    context.store.put(written)
    memory.applied[key] = (intent, content(written))
    context.metrics.writes.labels(kind).inc()
    return True


def _check_owner(context: Context, known: Body, resource: Resource) -> None:
    owner = owner_of(known)
    if owner == resource.uid:
        return
    managed = (known["metadata"].get("labels") or {}).get(
        "app.kubernetes.io/managed-by"
    ) == "moorage-operator"
    if owner is None and managed:
        return  # left behind by `kubectl delete --cascade=orphan`: taken over
    name = f"{known['kind']} {known['metadata']['name']}"
    living = {body["metadata"]["uid"] for body in context.store.all(KIND)}
    if managed and owner not in living:
        raise Conflict(f"{name} of an earlier object is still being removed", status=409)
    raise NameTaken(f"{name} exists and is not this object's; rename one of them")


def _note_repair(memory: Memory, key: tuple[str, str]) -> None:
    now = asyncio.get_running_loop().time()
    times = memory.repairs.setdefault(key, deque(maxlen=FIGHT_COUNT))
    if len(times) == FIGHT_COUNT and now - times[0] < FIGHT_SECONDS:
        raise Contested(f"{key[0]} {key[1]} is changed by somebody else again and again")
    times.append(now)


async def _write(context: Context, wanted: Body, known: Body | None) -> Body:
    try:
        return await context.api.apply(wanted)
    except Invalid:
        strategy = (wanted.get("spec") or {}).get("strategy") or {}
        leftover = ((known or {}).get("spec") or {}).get("strategy", {}).get("rollingUpdate")
        if strategy.get("type") != "Recreate" or not leftover:
            raise
        # Another manager also owns rollingUpdate, which Recreate forbids: apply cannot remove what others set.
        metadata = wanted["metadata"]
        patch = {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}
        await context.api.patch("Deployment", metadata["namespace"], metadata["name"], patch)
        return await context.api.apply(wanted)


def excess(wanted: Body, written: Body) -> Body | None:
    """A strategic merge patch that takes out what others may not add; None: nothing of that kind is there."""
    if wanted["kind"] == "Service":
        extra = _beyond(written["spec"].get("selector"), wanted["spec"]["selector"])
        return {"spec": {"selector": extra}} if extra else None
    if wanted["kind"] == "PodDisruptionBudget":
        extra = _beyond(
            written["spec"]["selector"].get("matchLabels"), wanted["spec"]["selector"]["matchLabels"]
        )
        return {"spec": {"selector": {"matchLabels": extra}}} if extra else None
    if wanted["kind"] == "Deployment":
        return _excess_env(wanted, written)
    return None


def _beyond(there: dict[str, str] | None, wanted: dict[str, str]) -> dict[str, None]:
    return dict.fromkeys(set(there or {}) - set(wanted))


def _excess_env(wanted: Body, written: Body) -> Body | None:
    container = wanted["spec"]["template"]["spec"]["containers"][0]
    intended = {e["name"]: e for e in container["env"] if e["name"] in RESERVED_ENV}
    there = next(
        c for c in written["spec"]["template"]["spec"]["containers"] if c["name"] == container["name"]
    )
    wrong: list[dict[str, Any]] = []
    for env in there.get("env") or []:
        name = env["name"]
        if name in intended and "value" in intended[name] and env.get("valueFrom"):
            wrong.append({"name": name, "valueFrom": None})
        elif name in intended and "valueFrom" in intended[name] and env.get("value"):
            wrong.append({"name": name, "value": None})
    if not wrong:
        return None
    return {"spec": {"template": {"spec": {"containers": [{"name": container["name"], "env": wrong}]}}}}


async def scale(context: Context, resource: Resource, name: str, replicas: int) -> bool:
    """Change nothing but a Deployment's replicas; True if it was written."""
    known = context.store.get("Deployment", resource.namespace, name)
    if known is None or known["spec"].get("replicas") == replicas:
        return False
    _check_owner(context, known, resource)
    patch = {"spec": {"replicas": replicas}, "metadata": {"uid": known["metadata"]["uid"]}}
    written = await context.api.patch("Deployment", resource.namespace, name, patch)
    context.store.put({"apiVersion": "apps/v1", "kind": "Deployment", **written})
    context.metrics.writes.labels("Deployment").inc()
    return True


async def remove(context: Context, memory: Memory, child: Body) -> None:
    """Delete a child that is not wanted any more."""
    metadata = child["metadata"]
    if metadata.get("deletionTimestamp"):
        return
    await context.api.delete(child["kind"], metadata["namespace"], metadata["name"], metadata["uid"])
    memory.applied.pop((child["kind"], metadata["name"]), None)
    context.metrics.writes.labels(child["kind"]).inc()
    log.info("%s/%s: %s removed", metadata["namespace"], metadata["name"], child["kind"])
