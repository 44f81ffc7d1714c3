"""A second Redis for sessions and tasks (``STATE_URL``), for rows that take the other one away: objects of the
harness's own, gone with the row's system."""

from __future__ import annotations

from typing import Any

from moorage_chaos.drivers.kubernetes_api import Api, Body
from moorage_chaos.drivers.kubernetes_hands import Hands

USER = 999
"""`redis` in the official images."""


def objects(namespace: str, name: str, image: str) -> dict[str, Body]:
    """By URL path: Deployment, Service and the Secret that holds the URL; all called ``name``."""
    labels = {"app.kubernetes.io/name": "moorage-chaos-state", "app.kubernetes.io/instance": name}
    container: dict[str, Any] = {
        "name": "redis",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["redis-server", "--save", "", "--appendonly", "no", "--protected-mode", "no"],
        "ports": [{"name": "redis", "containerPort": 6379}],
        "readinessProbe": {"tcpSocket": {"port": "redis"}, "periodSeconds": 1},
    }
    pod = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER},
        "containers": [container],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    ports = [{"name": "redis", "port": 6379, "targetPort": "redis"}]
    url = f"redis://{name}.{namespace}.svc:6379/0"
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
    return {
        f"{core}/secrets/{name}": {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata,
            "stringData": {"url": url},
        },
        f"{core}/services/{name}": {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": labels, "ports": ports},
        },
        f"{apps}/deployments/{name}": {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": spec,
        },
    }


class StateRedis:
    """There or not, as a setup wants."""

    def __init__(self, hands: Hands, name: str) -> None:
        self._hands, self._name = hands, f"{name}-chaos-state"
        self._made: list[str] = []

    @property
    def _api(self) -> Api:
        return self._hands.api

    async def have(self, wanted: bool, image: str) -> Body | None:
        """Make it or remove it; what ``spec.redis.stateUrlSecretKeyRef`` must be (None: as it was)."""
        if not wanted:
            for path in self._made:
                await self._api.delete(path)
                self._hands.done(f"own:{path}")
            self._made.clear()
            return None
        if not self._made:
            for path, body in objects(self._hands.namespace, self._name, image).items():
                self._hands.note(f"own:{path}", what="delete", path=path)
                await self._api.apply(path, body)
                self._made.append(path)
        return {"name": self._name, "key": "url"}
