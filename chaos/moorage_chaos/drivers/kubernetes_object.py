"""The RealtimeServer that a system is: found, set up for a row, put back."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Mapping
from typing import Any

from moorage_chaos.drivers.base import DriverError, Setup
from moorage_chaos.drivers.kubernetes_api import RTS, Api, Body

READY_BOUND_S = 180.0
"""From a change of the object to Ready: two rolls of three pods on a busy machine fit in."""
FIELDS = {
    "MOORAGE_DRAIN_MS": ("drain", "windowMs"),
    "MOORAGE_RPC_RECONNECT_GRACE_MS": ("rpc", "reconnectGraceMs"),
    "MOORAGE_RPC_CALL_TIMEOUT_MS": ("rpc", "callTimeoutMs"),
    "MOORAGE_RPC_CALL_TIMEOUT_MAX_MS": ("rpc", "callTimeoutMaxMs"),
}
"""Settings that the operator sets itself, by the field that says so; all others go into ``spec.env``."""
CHANGED = ("replicas", "env", "drain", "rpc", "worker", "image", "paused", "redis")
"""Fields of the spec that a setup may change; they are put back as they were."""


def wanted_spec(
    spec: Body,
    setup: Setup,
    *,
    image: str = "",
    env: Mapping[str, str] | None = None,
    state: Body | None = None,
) -> Body:
    """The fields of :data:`CHANGED` for a setup, on the ground of the user's own ``spec``. ``state``: where the URL
    of a Redis for the state is, a Secret's name and key."""
    full = {field: copy.deepcopy(spec.get(field)) for field in CHANGED}
    full["replicas"], full["paused"] = setup.replicas, False
    redis = full["redis"] or {}
    full["redis"] = {**redis, "stateUrlSecretKeyRef": state or redis.get("stateUrlSecretKeyRef")}
    if image:
        full["image"] = image
    if setup.workers or full.get("worker"):
        full["worker"] = {**(full.get("worker") or {}), "replicas": setup.workers}
    variables = {entry["name"]: entry for entry in full["env"] or []}
    for name, value in {**setup.env, **(env or {})}.items():
        if name in FIELDS:
            part, field = FIELDS[name]
            full[part] = {**(full[part] or {}), field: int(value)}
        else:
            variables[name] = {"name": name, "value": value}
    full["env"] = list(variables.values())
    return full


def is_settled(body: Body) -> bool:
    """Ready, for the present generation, and nothing moves."""
    status = body.get("status") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
    current = status.get("observedGeneration") == body["metadata"]["generation"]
    return current and conditions.get("Ready") == "True" and conditions.get("Progressing") == "False"


def story(body: Body) -> str:
    """Its conditions in a line, for errors."""
    found = (body.get("status") or {}).get("conditions") or []
    return "; ".join(f"{c['type']} {c['status']} {c['reason']}: {c['message']}" for c in found) or "no status"


class Object:
    """One RealtimeServer."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self.namespace, self.name = namespace, name

    @classmethod
    async def find(cls, api: Api, namespace: str, name: str) -> Object:
        """``name`` empty: the only one in the namespace. Raises DriverError."""
        if name:
            return cls(api, namespace, name)
        found = [
            body["metadata"]["name"]
            for body in await api.items(f"{RTS}/namespaces/{namespace}/realtimeservers")
        ]
        if len(found) != 1:
            listed = ", ".join(found) or "none"
            raise DriverError(
                f"namespace {namespace} holds {listed}; "
                + ("choose one by --name" if found else "--deploy makes one")
            )
        return cls(api, namespace, found[0])

    @property
    def path(self) -> str:
        return f"{RTS}/namespaces/{self.namespace}/realtimeservers/{self.name}"

    async def body(self) -> Body:
        """Raises ApiError."""
        return await self._api.get(self.path)

    async def patch(self, spec: Body) -> None:
        await self._api.patch(self.path, {"spec": spec})

    async def settled(self, bound_s: float = READY_BOUND_S) -> Body:
        """Wait until :func:`is_settled`. Raises DriverError with its conditions."""
        end = time.monotonic() + bound_s
        body: dict[str, Any] = {}
        while True:
            try:
                body = await self.body()
                if is_settled(body):
                    return body
            except DriverError:
                if time.monotonic() > end:
                    raise
            if time.monotonic() > end:
                raise DriverError(f"{self.name} is not Ready after {bound_s:g} s: {story(body)}")
            await asyncio.sleep(0.2)
