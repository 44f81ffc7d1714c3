"""Reading what pods depend on besides the spec: referenced and generated Secrets, ConfigMaps, the claim."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from moorage_operator.api import Body
from moorage_operator.context import Context, Memory
from moorage_operator.desired import labels, pod, secrets
from moorage_operator.desired.inputs import (
    Inputs,
    Reference,
    decoded,
    external_backend,
    fingerprint,
    references,
)
from moorage_operator.desired.redis import quantity
from moorage_operator.errors import Conflict, Forbidden, Invalid, NotFound
from moorage_operator.observe import Observed
from moorage_operator.plan import MANAGED, NONE
from moorage_operator.resource import Resource
from moorage_operator.store import owner_of, version_of


@dataclass(slots=True)
class Gathered:
    """``target``: the backend that the spec asks for; None while it cannot be known (the URL is missing)."""

    inputs: Inputs
    target: str | None
    problems: list[tuple[str, str]] = field(default_factory=list)
    remade: list[str] = field(default_factory=list)
    """Generated Secrets that somebody had deleted."""


async def gather(context: Context, memory: Memory, resource: Resource, observed: Observed) -> Gathered:
    """Everything the objects depend on. Missing references become problems, not errors."""
    generated = [] if resource.spec.paused else _generated(resource, observed)
    remade = [
        wanted["metadata"]["name"] for wanted in generated if await _ensure(context, memory, wanted, resource)
    ]
    found: dict[tuple[str, str], Body] = {}
    problems = []
    for reference in _all(resource, observed):
        known = await _find(context, resource, reference)
        if known is not None:
            found[reference.kind, reference.name] = known
        elif not reference.optional:
            reason = f"{reference.kind}NotFound"
            problems.append(
                (reason, f"{reference.kind} {reference.name} does not exist in {resource.namespace}")
            )
    versions: Any = (
        resource.spec.model_dump_json(),
        observed.redis_storage,
        observed.redis_exists,
        tuple(sorted((*key, body["metadata"].get("uid"), version_of(body)) for key, body in found.items())),
    )
    if memory.inputs is None or memory.inputs[0] != versions or memory.target is None:
        data = {key: await _data(context, resource, *key) for key in found}
        missing = _missing_keys(resource, data)
        inputs, memory.target, trouble = _inputs(context, resource, observed, data)
        problems += missing + trouble
        memory.inputs = (versions, inputs) if not problems else None
        return Gathered(inputs, memory.target, problems, remade)
    return Gathered(memory.inputs[1], memory.target, problems, remade)


def _password_wanted(resource: Resource, observed: Observed) -> bool:
    """Also while a managed Redis is only on its way out: it must not be restarted for that."""
    redis = resource.spec.redis
    return redis.auth.enabled and (redis.mode == "Managed" or observed.redis_exists)


def _generated(resource: Resource, observed: Observed) -> list[Body]:
    wanted = []
    if resource.spec.secret_key_ref is None:
        wanted.append(secrets.secret_key(resource))
    if _password_wanted(resource, observed) and resource.spec.redis.auth.secret_key_ref is None:
        wanted.append(secrets.password(resource))
    return wanted


def _all(resource: Resource, observed: Observed) -> list[Reference]:
    paused, auth = resource.spec.paused, resource.spec.redis.auth.secret_key_ref
    made = [
        Reference("Secret", body["metadata"]["name"], None, optional=paused)
        for body in _generated(resource, observed)
    ]
    if auth is not None and resource.spec.redis.mode != "Managed":
        made.append(Reference("Secret", auth.name, auth.key, optional=True))
    return references(resource) + made


async def _ensure(context: Context, memory: Memory, wanted: Body, resource: Resource) -> bool:
    """Create a generated Secret if it is not there; True if it had been there before."""
    name = wanted["metadata"]["name"]
    known = context.store.get("Secret", resource.namespace, name)
    if known is None:
        known = await context.api.find("Secret", resource.namespace, name)
    if known is not None:
        if owner_of(known) not in (None, resource.uid):
            raise Conflict(f"Secret {name} of an earlier object is still being removed", status=409)
        memory.made_secrets.add(name)
        return False
    context.store.put(await context.api.create(wanted))
    before = name in memory.made_secrets or memory.served
    memory.made_secrets.add(name)
    return before


async def _find(context: Context, resource: Resource, reference: Reference) -> Body | None:
    """From the store; one that it does not hold is looked up, for a watch may lag."""
    known = context.store.get(reference.kind, resource.namespace, reference.name)
    if known is None:
        known = await context.api.find(reference.kind, resource.namespace, reference.name)
        if known is not None:
            known = {"kind": reference.kind, **known}
            context.store.put(known)
    return known


async def _data(context: Context, resource: Resource, kind: str, name: str) -> dict[str, str]:
    try:
        body = await context.api.get(kind, resource.namespace, name)
    except NotFound:
        return {}
    if kind == "Secret":
        return decoded(body.get("data"))
    return {**(body.get("data") or {}), **(body.get("binaryData") or {})}


def _missing_keys(resource: Resource, data: dict[tuple[str, str], dict[str, str]]) -> list[tuple[str, str]]:
    problems = []
    for reference in references(resource):
        there = data.get((reference.kind, reference.name))
        if there is not None and reference.key and not reference.optional and not there.get(reference.key):
            text = f"{reference.kind} {reference.name} has no key {reference.key} (or it is empty)"
            problems.append((f"{reference.kind}KeyNotFound", text))
    return problems


def _inputs(
    context: Context, resource: Resource, observed: Observed, data: dict[tuple[str, str], dict[str, str]]
) -> tuple[Inputs, str | None, list[tuple[str, str]]]:
    redis, uid = resource.spec.redis, resource.uid
    password, port, target = None, None, NONE
    problems: list[tuple[str, str]] = []
    unknown = False
    if redis.mode == "Managed":
        target = MANAGED
    if _password_wanted(resource, observed):
        ref = redis.auth.secret_key_ref
        name, key = (ref.name, ref.key) if ref else (labels.password_name(resource), "password")
        password = data.get(("Secret", name), {}).get(key)
    if redis.external is not None:
        ref = redis.external.url_secret_key_ref
        url = data.get(("Secret", ref.name), {}).get(ref.key)
        try:
            target, port = external_backend(uid, url or "")
        except ValueError as error:
            unknown = True
            if url:
                problems.append(("RedisUrlInvalid", f"Secret {ref.name}, key {ref.key}: {error}"))
    # Only what a pod reads may count: another key of a referenced Secret changes nothing for it.
    read: dict[str, Any] = {}
    for reference in references(resource):
        there = data.get((reference.kind, reference.name))
        if there is None:
            continue
        value: Any = there if reference.key is None else there.get(reference.key)
        read[f"{reference.kind}/{reference.name}/{reference.key or ''}"] = value
    if target == MANAGED:
        read["password"] = password
    ref = pod.secret_key_ref(resource)
    read["secret-key"] = data.get(("Secret", ref.name), {}).get(ref.key)
    inputs = Inputs(
        fingerprint(uid, read), password, observed.redis_storage, port, context.operator_namespace
    )
    return inputs, None if unknown else target, problems


async def grow_claim(context: Context, memory: Memory, resource: Resource, observed: Observed) -> str:
    """Ask for a larger claim when the spec does; returns why it cannot be, or an empty text."""
    wanted, made = resource.spec.redis.storage.size, observed.redis_storage
    if made is None or quantity(wanted) <= quantity(made) or memory.storage_grown == wanted:
        return ""
    if memory.storage_refused and memory.storage_refused[0] == wanted:
        return memory.storage_refused[1]
    name = f"data-{labels.redis_name(resource)}-0"
    patch = {"spec": {"resources": {"requests": {"storage": wanted}}}}
    try:
        await context.api.patch("PersistentVolumeClaim", resource.namespace, name, patch)
    except NotFound:
        return ""
    except (Forbidden, Invalid) as error:
        why = f"claim {name} stays at {made}: {error}"
        memory.storage_refused = (wanted, why)
        return why
    memory.storage_grown, memory.storage_refused = wanted, None
    return ""
