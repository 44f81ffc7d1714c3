"""What rows about Kubernetes use: the API, the system's object, objects of their own, and what is seen of them."""

from __future__ import annotations

import asyncio
import copy
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from moorage_chaos.drivers.base import Driver, DriverError

if TYPE_CHECKING:
    from moorage_chaos.drivers.kubernetes import KubernetesDriver

Body = dict[str, Any]
PLURALS: dict[str, str] = {
    "Deployment": "apis/apps/v1/{}/deployments",
    "StatefulSet": "apis/apps/v1/{}/statefulsets",
    "ReplicaSet": "apis/apps/v1/{}/replicasets",
    "Service": "api/v1/{}/services",
    "ServiceAccount": "api/v1/{}/serviceaccounts",
    "ConfigMap": "api/v1/{}/configmaps",
    "Secret": "api/v1/{}/secrets",
    "Pod": "api/v1/{}/pods",
    "PersistentVolumeClaim": "api/v1/{}/persistentvolumeclaims",
    "PodDisruptionBudget": "apis/policy/v1/{}/poddisruptionbudgets",
    "NetworkPolicy": "apis/networking.k8s.io/v1/{}/networkpolicies",
    "HorizontalPodAutoscaler": "apis/autoscaling/v2/{}/horizontalpodautoscalers",
    "RealtimeServer": "apis/moorage.dev/v1alpha1/{}/realtimeservers",
}
"""Kinds that the operator makes, and where they are."""
OWNED = tuple(
    kind for kind in PLURALS if kind not in ("ReplicaSet", "Pod", "PersistentVolumeClaim", "RealtimeServer")
)
"""Kinds of which every object must name its owner; the rest are made by other controllers, or kept by policy."""


def on_cluster(driver: Driver) -> KubernetesDriver:
    """The driver, known to be on Kubernetes. Raises DriverError if it is not."""
    if driver.kind != "kubernetes":
        raise DriverError("this row needs --driver kubernetes")
    return cast("KubernetesDriver", driver)


def merged(base: Body, patch: Body) -> Body:
    """JSON merge patch (RFC 7386), except that null stays: a bad object may be bad by a null."""
    result = copy.deepcopy(base)
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


class Own:
    """A RealtimeServer in the system's namespace, the system's own or another one; its children by kind."""

    def __init__(self, driver: Driver, name: str = "") -> None:
        self.driver = on_cluster(driver)
        self.api, self.namespace = self.driver.api, self.driver.namespace
        self.name = name or self.driver.object.name

    def path(self, kind: str, name: str = "") -> str:
        """URL path; of the collection if ``name`` is empty."""
        root = "/" + PLURALS[kind].format(f"namespaces/{self.namespace}")
        return f"{root}/{name}" if name else root

    @property
    def own_path(self) -> str:
        return self.path("RealtimeServer", self.name)

    def smallest(self, **spec: Any) -> Body:
        """A RealtimeServer of this name: image, Redis image and times of the system's own, ``spec`` merged in."""
        like = self.driver.original
        quick = {
            "image": like["image"],
            "redis": {"image": like["redis"]["image"]},
            "drain": {"preStopSeconds": 1, "windowMs": 1000},
            "rollout": {"minReadySeconds": 1},
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
        }
        body = {"apiVersion": "moorage.dev/v1alpha1", "kind": "RealtimeServer"}
        metadata = {"name": self.name, "namespace": self.namespace}
        return {**body, "metadata": metadata, "spec": merged(quick, spec)}

    async def create(self, **spec: Any) -> None:
        """Written to the journal first."""
        self.driver.hands.note(f"own:{self.name}", what="delete", path=self.own_path)
        await self.api.request("POST", self.path("RealtimeServer"), body=self.smallest(**spec))

    async def patch(self, **spec: Any) -> None:
        await self.api.patch(self.own_path, {"spec": spec})

    async def delete(self) -> None:
        await self.api.delete(self.own_path)
        self.driver.hands.done(f"own:{self.name}")

    async def body(self) -> Body:
        return await self.api.get(self.own_path)

    async def child(self, kind: str, suffix: str = "") -> Body | None:
        return await self.api.find(self.path(kind, self.name + suffix))

    async def children(self, *kinds: str) -> list[Body]:
        """All objects of these kinds that carry its label, each with its ``kind``."""
        found: list[Body] = []
        for kind in kinds:
            items = await self.api.items(self.path(kind), f"app.kubernetes.io/instance={self.name}")
            found += [{**item, "kind": kind} for item in items]
        return found

    async def pods(self) -> list[Body]:
        """Server pods that are not going."""
        label = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component=server"
        pods = await self.api.items(self.path("Pod"), label)
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    async def condition(self, kind: str) -> Body:
        found = ((await self.body()).get("status") or {}).get("conditions") or []
        return next((c for c in found if c["type"] == kind), {})

    async def reasons(self) -> Counter[str]:
        """How many Events of each reason there are about this very object: those about an earlier one of its name
        stay for an hour."""
        uid = (await self.body())["metadata"]["uid"]
        path = f"/api/v1/namespaces/{self.namespace}/events"
        events = await self.api.items(path, fields=f"involvedObject.uid={uid}")
        return Counter(str(event.get("reason")) for event in events)

    async def revision(self) -> int:
        """How often the Deployment's pod template has changed, plus one. Raises DriverError without Deployment."""
        deployment = await self.child("Deployment")
        if deployment is None:
            raise DriverError(f"{self.name} has no Deployment")
        return int(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"])

    async def ready(self, bound_s: float = 180.0) -> Body:
        """Wait until it is Ready and nothing moves. Raises DriverError."""
        from moorage_chaos.drivers.kubernetes_object import Object

        return await Object(self.api, self.namespace, self.name).settled(bound_s)


async def until(what: str, probe: Callable[[], Awaitable[Any]], bound_s: float, pause_s: float = 0.1) -> Any:
    """The first true answer of ``probe``. Raises TimeoutError that says ``what``."""
    end = time.monotonic() + bound_s
    while True:
        if answer := await probe():
            return answer
        if time.monotonic() > end:
            raise TimeoutError(f"not within {bound_s:g} s: {what}")
        await asyncio.sleep(pause_s)
