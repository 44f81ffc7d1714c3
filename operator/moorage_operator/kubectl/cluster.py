"""The cluster as the commands see it: objects as dicts, metrics and logs of pods, evictions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from moorage_operator.errors import ApiError, NotFound, OperatorError, api_error
from moorage_operator.kubectl.transport import Answer, Transport
from moorage_operator.resource import API_VERSION, KIND, PLURAL

Body = dict[str, Any]

KINDS: dict[str, tuple[str, str]] = {
    KIND: (API_VERSION, PLURAL),
    "Pod": ("v1", "pods"),
    "Service": ("v1", "services"),
    "ServiceAccount": ("v1", "serviceaccounts"),
    "ConfigMap": ("v1", "configmaps"),
    "Secret": ("v1", "secrets"),
    "PersistentVolumeClaim": ("v1", "persistentvolumeclaims"),
    "Event": ("v1", "events"),
    "Node": ("v1", "nodes"),
    "ResourceQuota": ("v1", "resourcequotas"),
    "Deployment": ("apps/v1", "deployments"),
    "ReplicaSet": ("apps/v1", "replicasets"),
    "StatefulSet": ("apps/v1", "statefulsets"),
    "PodDisruptionBudget": ("policy/v1", "poddisruptionbudgets"),
    "HorizontalPodAutoscaler": ("autoscaling/v2", "horizontalpodautoscalers"),
    "NetworkPolicy": ("networking.k8s.io/v1", "networkpolicies"),
    "EndpointSlice": ("discovery.k8s.io/v1", "endpointslices"),
    "ServiceMonitor": ("monitoring.coreos.com/v1", "servicemonitors"),
    "Lease": ("coordination.k8s.io/v1", "leases"),
}
"""kind → (apiVersion, plural)"""

PAGE = 500
"""[objects] Page of a list, as kubectl's."""
POD_SECONDS = 5.0
"""[s] Bound of a question to a pod through the API server: one that hangs must not hold up the others."""
LOG_BYTES = 10_000_000
"""[bytes] Of one container's log that is fetched whole."""


class NoCrd(OperatorError):
    """The cluster does not know the custom resource."""


class Missing(OperatorError):
    """What was named is not there; the text says what is."""


def path_of(kind: str, namespace: str | None, name: str = "", subresource: str = "") -> str:
    """URL path of an object, or of the collection when ``name`` is empty."""
    version, plural = KINDS[kind]
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    parts = [root, f"namespaces/{namespace}" if namespace else "", plural, name, subresource]
    return "/".join(part for part in parts if part)


class Cluster:
    """``seconds`` bounds each request. What the API server refuses is raised as an ``ApiError``."""

    def __init__(self, transport: Transport, seconds: float = 15.0) -> None:
        self._transport, self._seconds = transport, seconds

    def get(self, kind: str, namespace: str | None, name: str) -> Body:
        return self._json("GET", path_of(kind, namespace, name))

    def find(self, kind: str, namespace: str | None, name: str) -> Body | None:
        """The object, or None when there is none."""
        try:
            return self.get(kind, namespace, name)
        except NotFound:
            return None

    def all(self, kind: str, namespace: str | None, selector: str = "") -> list[Body]:
        """All of a kind, page by page; ``namespace`` None is the whole cluster."""
        query, items = {"limit": str(PAGE)}, []
        if selector:
            query["labelSelector"] = selector
        version = KINDS[kind][0]
        while True:
            page = self._json("GET", path_of(kind, namespace), query)
            items += [{"apiVersion": version, "kind": kind, **item} for item in page.get("items") or []]
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return items
            query["continue"] = token

    def servers(self, namespace: str | None, name: str | None = None) -> list[Body]:
        """The ``RealtimeServer`` objects, or the one named. Raises :class:`NoCrd`, :class:`Missing`."""
        try:
            found = self.all(KIND, namespace)
        except NotFound:
            raise NoCrd(
                f"this cluster does not know {KIND} ({API_VERSION}); "
                "install it: kubectl apply -f manifests/00-crd.yaml"
            ) from None
        where = f"in namespace {namespace}" if namespace else "in the cluster"
        if name is None:
            if not found:
                more = "; another namespace: -n NAME, all of them: -A" if namespace else ""
                raise Missing(f"there is no {KIND} {where}{more}")
            return found
        chosen = [body for body in found if body["metadata"]["name"] == name]
        if not chosen:
            names = ", ".join(body["metadata"]["name"] for body in found) or "none"
            raise Missing(f"no {KIND} {name} {where}; there is: {names}")
        return chosen

    def page(self, namespace: str, pod: str, port: int, path: str) -> str:
        """GET on a pod through the API server's proxy; needs ``get`` on ``pods/proxy``."""
        url = path_of("Pod", namespace, f"{pod}:{port}", f"proxy/{path.lstrip('/')}")
        answer = self._transport.send("GET", url, {}, seconds=min(POD_SECONDS, self._seconds))
        return self._checked("GET", url, answer).text

    def log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        since: float | None = None,
        lines: int | None = None,
        previous: bool = False,
    ) -> str:
        """A container's log with time stamps: the last ``lines``, of the last ``since`` seconds."""
        query = _log_query(container, since, lines) | {"limitBytes": str(LOG_BYTES)}
        if previous:
            query["previous"] = "true"
        path = path_of("Pod", namespace, pod, "log")
        return self._checked("GET", path, self._send("GET", path, query)).text

    def follow(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        since: float | None = None,
        lines: int | None = None,
        after: str = "",
        seconds: float = 60.0,
    ) -> Iterator[str]:
        """The log with time stamps as it comes; ends with the container, a cut, or ``seconds`` of silence.

        ``after`` (RFC 3339) asks from that second on.
        """
        query = _log_query(container, since, lines) | {"follow": "true"}
        if after:
            query["sinceTime"] = after
        return self._transport.lines(path_of("Pod", namespace, pod, "log"), query, seconds=seconds)

    def evict(self, namespace: str, pod: str, *, dry_run: bool = False) -> None:
        """Raises :class:`~moorage_operator.errors.TooMany` when a PodDisruptionBudget refuses."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
        }
        query = {"dryRun": "All"} if dry_run else {}
        self._json("POST", path_of("Pod", namespace, pod, "eviction"), query, body)

    def version(self) -> str:
        """Of Kubernetes, such as v1.34.4."""
        return str(self._json("GET", "/version").get("gitVersion", "unknown"))

    def _send(self, method: str, path: str, query: dict[str, str] | None = None, body: Any = None) -> Answer:
        return self._transport.send(method, path, query or {}, body, seconds=self._seconds)

    def _json(self, method: str, path: str, query: dict[str, str] | None = None, body: Any = None) -> Body:
        answer = self._checked(method, path, self._send(method, path, query, body))
        try:
            document = json.loads(answer.text)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise ApiError(f"{method} {path}: the answer is no JSON object; is this a Kubernetes API server?")
        return document

    @staticmethod
    def _checked(method: str, path: str, answer: Answer) -> Answer:
        if answer.status < 300:
            return answer
        try:
            document = json.loads(answer.text)
        except ValueError:
            document = None
        status = document if isinstance(document, dict) else {}
        message = status.get("message") or answer.text.strip()[:300] or f"HTTP {answer.status}"
        wait = float(answer.retry_after) if answer.retry_after.isdigit() else 0.0
        raise api_error(
            answer.status,
            f"{method} {path}: {message}",
            reason=str(status.get("reason", "")),
            retry_after=wait,
        )


def _log_query(container: str, since: float | None, lines: int | None) -> dict[str, str]:
    query = {"container": container, "timestamps": "true"}
    if since is not None:
        query["sinceSeconds"] = str(max(1, int(since)))
    if lines is not None:
        query["tailLines"] = str(lines)
    return query
