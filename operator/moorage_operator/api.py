"""The only place with a Kubernetes client: plain dicts in and out, every request bounded, errors translated once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config

from moorage_operator.errors import ApiError, NotFound, Unreachable, api_error
from moorage_operator.resource import API_VERSION, KIND, PLURAL

FIELD_MANAGER = "moorage-operator"
REQUEST_SECONDS = 15.0
"""[s] Bound of one request, connection and answer together."""
PAGE = 500
"""[objects] Page of a list, as kubectl's."""

Body = dict[str, Any]

PLURALS: dict[str, tuple[str, str]] = {
    KIND: (API_VERSION, PLURAL),
    "Deployment": ("apps/v1", "deployments"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "Service": ("v1", "services"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "ConfigMap": ("v1", "configmaps"),
    "Secret": ("v1", "secrets"),
    "Pod": ("v1", "pods"),
    "Event": ("v1", "events"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
    "ServiceMonitor": ("monitoring.coreos.com/v1", "servicemonitors"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
}
"""kind → (apiVersion, plural) of everything that the operator reads or writes."""


def path_of(kind: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
    """URL path of an object, or of the collection when ``name`` is empty."""
    version, plural = PLURALS[kind]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    parts = [root, f"namespaces/{namespace}" if namespace else "", plural, name, subresource]
    return "/".join(part for part in parts if part)


class Api:
    """The API server. Build with :meth:`connect`; ``close`` when done."""

    def __init__(self, api_client: Any, on_request: Callable[[str, int], None] | None = None) -> None:
        self._client = api_client
        self._on_request = on_request or (lambda verb, status: None)

    @classmethod
    async def connect(cls, on_request: Callable[[str, int], None] | None = None) -> Api:
        """As the pod's service account, else by ``KUBECONFIG`` / ``~/.kube/config``.

        Raises :class:`Unreachable` when neither is there.
        """
        settings = client.Configuration()
        try:
            if os.environ.get("KUBERNETES_SERVICE_HOST"):
                config.load_incluster_config(client_configuration=settings)
            else:
                # Named here, as kopf reads it: the client keeps what the variable said when it was imported.
                where = os.environ.get("KUBECONFIG") or "~/.kube/config"
                await config.load_kube_config(config_file=where, client_configuration=settings)
        except (config.ConfigException, OSError) as error:
            raise Unreachable(f"no way to a Kubernetes API server: {error}") from error
        # The client's own retries would hide 429 and double writes; the queue's backoff is ours.
        settings.retries = None
        return cls(client.ApiClient(configuration=settings), on_request)

    async def close(self) -> None:
        await self._client.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        query: dict[str, str] | None = None,
    ) -> Body:
        """One request. Raises an :class:`~moorage_operator.errors.ApiError` for everything but 2xx."""
        url = f"{path}?{urlencode(query)}" if query else path
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                prepared = await self._client.param_serialize(
                    method, url, header_params=headers, body=body, auth_settings=["BearerToken"]
                )
                answer = await self._client.call_api(*prepared)
                text = await answer.read()
        except (TimeoutError, OSError, aiohttp.ClientError, client.ApiException) as error:
            self._on_request(method, 0)
            raise Unreachable(f"{method} {path}: {type(error).__name__} {error}".rstrip()) from error
        self._on_request(method, answer.status)
        try:
            document = json.loads(text) if text else {}
        except ValueError:
            document = {"message": text[:300].decode(errors="replace")}
        if answer.status >= 300:
            message = document.get("message") or f"{method} {path}: HTTP {answer.status}"
            raise api_error(
                answer.status,
                message,
                reason=document.get("reason", ""),
                retry_after=_seconds(answer.headers.get("Retry-After")),
            )
        result: Body = document
        return result

    async def get(self, kind: str, namespace: str | None, name: str) -> Body:
        return await self.request("GET", path_of(kind, namespace, name))

    async def find(self, kind: str, namespace: str | None, name: str) -> Body | None:
        """The object, or None when there is none."""
        try:
            return await self.get(kind, namespace, name)
        except NotFound:
            return None

    async def list(self, kind: str, namespace: str | None, selector: str = "") -> list[Body]:
        """All of a kind, page by page; ``namespace`` None is the whole cluster."""
        items: list[Body] = []
        query = {"limit": str(PAGE)}
        if selector:
            query["labelSelector"] = selector
        version = PLURALS[kind][0]
        while True:
            page = await self.request("GET", path_of(kind, namespace), query=query)
            items += [{"apiVersion": version, "kind": kind, **item} for item in page.get("items") or []]
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return items
            query["continue"] = token

    async def create(self, body: Body) -> Body:
        namespace = body["metadata"].get("namespace")
        query = {"fieldManager": FIELD_MANAGER}
        return await self.request("POST", path_of(body["kind"], namespace), body=body, query=query)

    async def apply(self, body: Body, subresource: str = "") -> Body:
        """Server-side apply with force: what stands in ``body`` is ours, the rest stays with others."""
        metadata = body["metadata"]
        return await self.request(
            "PATCH",
            path_of(body["kind"], metadata.get("namespace"), metadata["name"], subresource),
            body=body,
            content_type="application/apply-patch+yaml",
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
        )

    async def patch(self, kind: str, namespace: str, name: str, patch: Any, *, how: str = "merge") -> Body:
        """``how``: merge, strategic-merge or json."""
        return await self.request(
            "PATCH",
            path_of(kind, namespace, name),
            body=patch,
            content_type=f"application/{how}-patch+json",
            query={"fieldManager": FIELD_MANAGER},
        )

    async def replace(self, body: Body) -> Body:
        """PUT; with ``metadata.resourceVersion`` it raises :class:`Conflict` if somebody was faster."""
        metadata = body["metadata"]
        path = path_of(body["kind"], metadata.get("namespace"), metadata["name"])
        return await self.request("PUT", path, body=body, query={"fieldManager": FIELD_MANAGER})

    async def delete(self, kind: str, namespace: str, name: str, uid: str | None = None) -> None:
        """In the background, only the object of that ``uid``; one that is gone already is no error."""
        options: Body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        try:
            await self.request("DELETE", path_of(kind, namespace, name), body=options)
        except NotFound:
            pass

    async def knows(self, kind: str) -> bool:
        """Whether the cluster serves ``kind``."""
        version, plural = PLURALS[kind]
        try:
            served = await self.request("GET", f"/apis/{version}")
        except NotFound:
            return False
        return any(resource.get("name") == plural for resource in served.get("resources", []))

    async def version(self) -> tuple[int, int]:
        """(major, minor) of the API server."""
        answer = await self.request("GET", "/version")
        return int(answer["major"]), int("".join(c for c in answer["minor"] if c.isdigit()))


def _seconds(header: str | None) -> float:
    """Retry-After in seconds; a date or nonsense counts as 1 s."""
    if not header:
        return 0.0
    return float(header) if header.isdigit() else 1.0


__all__ = ["FIELD_MANAGER", "PLURALS", "Api", "ApiError", "Body", "path_of"]
