"""A small API server's answers by path, and bodies to fill it with."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable, Iterator
from typing import Any

from moorage_operator.errors import Unreachable
from moorage_operator.kubectl.cluster import KINDS, Body, Cluster, path_of
from moorage_operator.kubectl.transport import Answer
from moorage_operator.resource import KIND

from ..schema import defaulted

NOW = datetime.datetime(2026, 11, 30, 12, 0, 0, tzinfo=datetime.UTC)
NAMESPACE = "realtime"


def ago(seconds: float) -> str:
    return (NOW - datetime.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class FakeApi:
    """A transport. ``bodies`` are what is there; ``pages`` and ``logs`` what pods say; ``refused`` answers instead."""

    def __init__(self, *bodies: Body) -> None:
        self.bodies: dict[str, Body] = {}
        self.pages: dict[str, str] = {}
        """``pod:port/path`` → text"""
        self.logs: dict[str, list[str]] = {}
        self.refused: dict[str, Answer] = {}
        """``METHOD part-of-a-path`` → answer"""
        self.sent: list[tuple[str, str, dict[str, str]]] = []
        self.on_evict: Callable[[str], None] = lambda pod: None
        self.absent_kinds: set[str] = set()
        self.page_size = 500
        for body in bodies:
            self.put(body)

    def put(self, body: Body) -> None:
        metadata = body["metadata"]
        self.bodies[path_of(body["kind"], metadata.get("namespace"), metadata["name"])] = body

    def drop(self, body: Body) -> None:
        metadata = body["metadata"]
        del self.bodies[path_of(body["kind"], metadata.get("namespace"), metadata["name"])]

    def send(
        self, method: str, path: str, query: dict[str, str], body: Any = None, *, seconds: float
    ) -> Answer:
        assert seconds > 0
        self.sent.append((method, path, query))
        for what, answer in self.refused.items():
            verb, part = what.split(" ", 1)
            if verb == method and part in path:
                if answer.status == 0:
                    raise Unreachable(f"{method} {path}: nobody answers")
                return answer
        if "/proxy/" in path:
            return self._page(path)
        if path.endswith("/log"):
            return Answer(200, "".join(f"{line}\n" for line in self.logs.get(path.split("/")[-2], [])))
        if path.endswith("/eviction") and method == "POST":
            if not query.get("dryRun"):
                self.on_evict(path.split("/")[-2])
            return Answer(201, json.dumps({"kind": "Status", "status": "Success"}))
        if path == "/version":
            return Answer(200, json.dumps({"gitVersion": "v1.34.4"}))
        return self._object(path, query)

    def _page(self, path: str) -> Answer:
        target = path.split("/pods/", 1)[1].replace("/proxy", "", 1)
        if target in self.pages:
            return Answer(200, self.pages[target])
        message = "error trying to reach service: dial tcp 10.0.0.1:9090: connect: connection refused"
        return Answer(503, status(503, "ServiceUnavailable", message))

    def _object(self, path: str, query: dict[str, str]) -> Answer:
        if path in self.bodies:
            return Answer(200, json.dumps(self.bodies[path]))
        kind = next((k for k, (_, plural) in KINDS.items() if path.endswith(f"/{plural}")), None)
        if kind is None:
            name = path.rsplit("/", 1)[-1]
            return Answer(404, status(404, "NotFound", f'"{name}" not found'))
        if kind in self.absent_kinds:
            return Answer(404, "404 page not found\n")
        wanted = dict(part.split("=") for part in query.get("labelSelector", "").split(",") if part)
        folder = path if "/namespaces/" in path else ""
        items = [
            body
            for key, body in self.bodies.items()
            if body["kind"] == kind
            and key.startswith(folder)
            and wanted.items() <= (body["metadata"].get("labels") or {}).items()
        ]
        start = int(query.get("continue", "0"))
        end = start + min(int(query["limit"]), self.page_size)
        more = {"continue": str(end)} if end < len(items) else {}
        return Answer(200, json.dumps({"kind": f"{kind}List", "metadata": more, "items": items[start:end]}))

    def lines(self, path: str, query: dict[str, str], *, seconds: float) -> Iterator[str]:
        self.sent.append(("GET", path, query))
        yield from self.logs.get(path.split("/")[-2], [])

    @property
    def cluster(self) -> Cluster:
        return Cluster(self)


def status(code: int, reason: str, message: str) -> str:
    return json.dumps(
        {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    )


def refused_by_budget() -> Answer:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return Answer(429, status(429, "TooManyRequests", message), "10")


def labelled(name: str, component: str = "server") -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "moorage",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": component,
    }


def condition(kind: str, value: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": ago(300),
        "observedGeneration": 3,
    }


def server(name: str = "chat", **changes: Any) -> Body:
    """A settled object of two replicas with a managed Redis; ``changes`` replace parts of the status."""
    conditions = [
        condition("Ready", "True", "AllReplicasReady", "2 of 2 replicas are ready"),
        condition("Available", "True", "ReplicasReady", "2 of 2 replicas are ready"),
        condition("Progressing", "False", "Settled", "nothing to do"),
        condition("Degraded", "False", "AsExpected", "no problem is known"),
        condition("RedisReady", "True", "Answering", "the managed Redis answers"),
    ]
    body = {
        "apiVersion": "moorage.dev/v1alpha1",
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "generation": 3,
            "creationTimestamp": ago(86_400 * 5),
        },
        "spec": {
            "image": "ghcr.io/example/moorage-server:1.0.0",
            "replicas": 2,
            "redis": {"mode": "Managed"},
            "metrics": {"enabled": True},
        },
        "status": {
            "observedGeneration": 3,
            "replicas": 2,
            "readyReplicas": 2,
            "mode": "Clustered",
            "endpoint": f"{name}.{NAMESPACE}.svc:3000",
            "redis": {"mode": "Managed", "ready": True},
            "draining": [],
            "conditions": conditions,
            **changes,
        },
    }
    return defaulted(body)


def pod(name: str, of: str = "chat", component: str = "server", *, ready: bool = True, **meta: Any) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "labels": labelled(of, component),
            "creationTimestamp": ago(7200),
            **meta,
        },
        "spec": {
            "nodeName": "box-1",
            "terminationGracePeriodSeconds": 30,
            "containers": [{"name": component, "image": "ghcr.io/example/moorage-server:1.0.0"}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [
                {"name": component, "restartCount": 0, "containerID": "c", "state": {"running": {}}}
            ],
        },
    }


def waiting(body: Body, reason: str, message: str = "") -> Body:
    """The same pod with a container that does not start."""
    body["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    body["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": reason, "message": message}}
    return body


def metrics(user: int = 0, machine: int = 0, *, registrations: int = 0, drain: int = 0) -> str:
    return (
        "# HELP websocket_connections Connected sockets\n# TYPE websocket_connections gauge\n"
        f'websocket_connections{{client_type="user-scoped"}} {user}.0\n'
        f'websocket_connections{{client_type="machine-scoped"}} {machine}.0\n'
        f"rpc_registrations {registrations}.0\nrpc_calls_in_flight 1.0\ncluster_members 2.0\n"
        f"redis_stream_lag_ms NaN\ndrain_state {drain}.0\n"
    )


def budget(allowed: int = 1, name: str = "chat") -> Body:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labelled(name)},
        "spec": {"minAvailable": 1},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 2,
        },
    }


def secret(name: str, **data: str) -> Body:
    coded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labelled("chat", "redis")}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": coded}


def whole() -> FakeApi:
    """Two servers and a Redis of ``chat``, with metrics and logs."""
    fake = FakeApi(server(), pod("chat-a"), pod("chat-b"), pod("chat-redis-0", component="redis"), budget())
    fake.pages = {
        "chat-a:9090/metrics": metrics(3, 1, registrations=4),
        "chat-b:9090/metrics": metrics(5, 2, registrations=4),
        "chat-a:3005/ready": '{"status":"ok"}',
        "chat-b:3005/ready": '{"status":"ok"}',
    }
    fake.logs = {
        "chat-a": ["2026-11-30T11:59:01.5Z one", "2026-11-30T11:59:03.5Z three"],
        "chat-b": ["2026-11-30T11:59:02.5Z two"],
        "chat-redis-0": ["2026-11-30T11:59:00.5Z zero"],
    }
    return fake
