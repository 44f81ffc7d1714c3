"""Apply CRD, operator, node helper and sample through the API server, and wait until the sample is Ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import yaml

from moorage_chaos.deploy import images
from moorage_chaos.deploy.commands import ROOT
from moorage_chaos.deploy.providers import Provider
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import Api, ApiError, Body
from moorage_chaos.drivers.kubernetes_object import Object

READY_BOUND_S = 180.0
ROLLOUT_BOUND_S = 120.0
FIRST_BOUND_S = 30.0
"""From the CRD's creation until the API server serves its kind."""
REDIS_IN_BOX = "localhost/redis:box"


def documents(paths: Iterable[Path]) -> list[Body]:
    """Objects of YAML files, in order."""
    return [body for path in paths for body in yaml.safe_load_all(path.read_text()) if body]


def operator_objects(image: str, root: Path = ROOT) -> list[Body]:
    """CRD, namespace, roles and the operator's Deployment with ``image``."""
    found = documents(sorted((root / "manifests").glob("0*.yaml")))
    return [_with_image(body, image) for body in found]


def helper_objects(image: str, root: Path = ROOT) -> list[Body]:
    return [_with_image(body, image) for body in documents([root / "chaos" / "node" / "helper.yaml"])]


def _with_image(body: Body, image: str) -> Body:
    if body["kind"] in ("Deployment", "DaemonSet"):
        for container in body["spec"]["template"]["spec"]["containers"]:
            container["image"] = image
            container["imagePullPolicy"] = "IfNotPresent"
    return body


def sample(namespace: str, name: str, image: str, redis: str | None) -> list[Body]:
    """Three replicas behind a NodePort, with times short enough for tests."""
    spec: dict[str, Any] = {
        "image": image,
        "replicas": 3,
        "service": {"type": "NodePort"},
        "drain": {"preStopSeconds": 1, "windowMs": 4000},
        "rollout": {"minReadySeconds": 1},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
    }
    if redis:
        spec["redis"] = {"image": redis}
    server = {
        "apiVersion": "moorage.dev/v1alpha1",
        "kind": "RealtimeServer",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, server]


class Applier:
    """Server-side apply of any object: its path is looked up in the API server's own list of kinds."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._kinds: dict[str, dict[str, Body]] = {}

    async def path(self, body: Body) -> str:
        version, kind = body["apiVersion"], body["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if kind not in self._kinds.get(version, {}):
            served = await self._api.get(root)
            self._kinds[version] = {r["kind"]: r for r in served["resources"] if "/" not in r["name"]}
        found = self._kinds[version].get(kind)
        if found is None:
            raise ApiError(404, f"the cluster does not serve {version} {kind}")
        where = f"/namespaces/{body['metadata'].get('namespace', 'default')}" if found["namespaced"] else ""
        return f"{root}{where}/{found['name']}/{body['metadata']['name']}"

    async def apply(self, bodies: Iterable[Body]) -> None:
        """One after the other; a kind that was just defined is waited for. Raises DriverError."""
        for body in bodies:
            end = time.monotonic() + FIRST_BOUND_S
            while True:
                try:
                    await self._api.apply(await self.path(body), body)
                    break
                except ApiError as error:
                    if error.status not in (0, 404, 503) or time.monotonic() > end:
                        raise
                    await asyncio.sleep(0.3)


async def rolled_out(api: Api, path: str, bound_s: float = ROLLOUT_BOUND_S) -> None:
    """Wait until a Deployment or DaemonSet runs what was applied. Raises DriverError."""
    end = time.monotonic() + bound_s
    while True:
        body = await api.get(path)
        status, generation = body.get("status") or {}, body["metadata"]["generation"]
        if body["kind"] == "DaemonSet":
            wanted = status.get("desiredNumberScheduled", 0)
            good = wanted > 0 and status.get("numberReady") == status.get("updatedNumberScheduled") == wanted
        else:
            wanted = body["spec"].get("replicas", 1)
            good = (
                status.get("readyReplicas", 0)
                == status.get("updatedReplicas", 0)
                == status.get("replicas")
                == wanted
            )
        if good and status.get("observedGeneration") == generation:
            return
        if time.monotonic() > end:
            raise DriverError(f"{path} is not rolled out after {bound_s:g} s: {status}")
        await asyncio.sleep(0.3)


async def loaded(api: Api) -> set[str]:
    """References of images that every node has (kubelet lists the 50 largest, or all, by its configuration)."""
    nodes = await api.items("/api/v1/nodes")
    lists = [
        {name for image in node["status"].get("images") or [] for name in image.get("names") or []}
        for node in nodes
    ]
    return set.intersection(*lists) if lists else set()


async def deploy(
    api: Api, provider: Provider, namespace: str, name: str, tell: Callable[[str], None]
) -> dict[str, str]:
    """Everything onto the cluster; image name -> reference. An object that is there keeps its spec but the image.

    Raises DriverError.
    """
    there = await loaded(api)
    references = {}
    for image in images.ALL:
        reference = references[image.name] = provider.reference(image)
        known = {reference, f"docker.io/library/{reference}", f"docker.io/{reference}"}
        if not there & known:
            tell(f"building and loading {reference}")
            await asyncio.to_thread(provider.provide, image)
    tell("applying CRD, operator and node helper")
    applier = Applier(api)
    await applier.apply(operator_objects(references["moorage-operator"]))
    await applier.apply(helper_objects(references["moorage-chaos-node"]))
    await rolled_out(api, "/apis/apps/v1/namespaces/moorage-system/deployments/moorage-operator")
    await rolled_out(api, "/apis/apps/v1/namespaces/moorage-chaos/daemonsets/node-helper")
    tell(f"applying RealtimeServer {namespace}/{name}")
    redis = REDIS_IN_BOX if provider.kind == "testcluster" else None
    await applier.apply(sample(namespace, name, references["moorage-server"], redis))
    await Object(api, namespace, name).settled(READY_BOUND_S)
    return references
