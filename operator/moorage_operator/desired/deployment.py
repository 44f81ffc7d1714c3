"""Deployments of server and workers."""

from __future__ import annotations

from math import ceil
from typing import Any

from moorage_operator.desired.inputs import Inputs
from moorage_operator.desired.labels import Component, child, selector, server_name, worker_name
from moorage_operator.desired.pod import METRICS_PORT, PORT, template
from moorage_operator.plan import Render
from moorage_operator.resource import Probe, Resource, StartupProbe

GRACE_MARGIN_SECONDS = 5
"""[s] Between the end of the drain window and SIGKILL: the last typed ends, closing Redis, exit."""
PROGRESS_DEADLINE_SECONDS = 600
"""[s] Kubernetes' default; raised when start-up and minReadySeconds alone may take longer."""


def grace_seconds(resource: Resource) -> int:
    """[s] The kubelet's clock includes preStop, so it is part of the sum."""
    drain = resource.spec.drain
    return drain.pre_stop_seconds + ceil(drain.window_ms / 1000) + GRACE_MARGIN_SECONDS


def progress_deadline(resource: Resource) -> int:
    startup = resource.spec.probes.startup
    slowest = startup.period_seconds * startup.failure_threshold + resource.spec.rollout.min_ready_seconds
    return max(PROGRESS_DEADLINE_SECONDS, slowest + 60)


def _probe(path: str, probe: Probe | StartupProbe, port: str = "http") -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": probe.period_seconds,
        "timeoutSeconds": getattr(probe, "timeout_seconds", 1),
        "failureThreshold": probe.failure_threshold,
    }


def _pre_stop(resource: Resource) -> dict[str, Any]:
    seconds = resource.spec.drain.pre_stop_seconds
    return {"lifecycle": {"preStop": {"sleep": {"seconds": seconds}}}} if seconds else {}


def _ports(resource: Resource, *, http: bool) -> list[dict[str, Any]]:
    ports = [{"name": "http", "containerPort": PORT, "protocol": "TCP"}] if http else []
    if resource.spec.metrics.enabled:
        ports.append({"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"})
    return ports


def _deployment(
    resource: Resource, name: str, component: Component, replicas: int, recreate: bool, pod: dict[str, Any]
) -> dict[str, Any]:
    rollout = resource.spec.rollout
    strategy: dict[str, Any] = {"type": "Recreate"}
    if not recreate:
        rolling = {"maxUnavailable": 0, "maxSurge": rollout.max_surge}
        strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    return child(
        resource,
        "apps/v1",
        "Deployment",
        name,
        component,
        spec={
            "replicas": replicas,
            "minReadySeconds": rollout.min_ready_seconds,
            "progressDeadlineSeconds": progress_deadline(resource),
            "revisionHistoryLimit": 3,
            "strategy": strategy,
            "selector": {"matchLabels": selector(resource, component)},
            "template": pod,
        },
    )


def server(resource: Resource, render: Render, inputs: Inputs) -> dict[str, Any]:
    """The server's Deployment, as the plan wants it now."""
    probes = resource.spec.probes
    container = {
        "name": "server",
        "command": ["moorage", "serve"],
        "ports": _ports(resource, http=True),
        "resources": resource.spec.resources,
        "startupProbe": _probe("/health", probes.startup),
        "livenessProbe": _probe("/health", probes.liveness),
        "readinessProbe": _probe("/ready", probes.readiness),
        **_pre_stop(resource),
    }
    pod = template(resource, "server", render.backend, inputs, container, grace_seconds(resource))
    return _deployment(resource, server_name(resource), "server", render.replicas, render.recreate, pod)


def _worker_probes(resource: Resource) -> dict[str, Any]:
    """A worker listens for nothing but the scraper, so without metrics nothing can be asked of it. It has no
    readiness: nobody is led to it."""
    if not resource.spec.metrics.enabled:
        return {}
    probes = resource.spec.probes
    return {
        "startupProbe": _probe("/health", probes.startup, "metrics"),
        "livenessProbe": _probe("/health", probes.liveness, "metrics"),
    }


def worker(resource: Resource, backend: str, inputs: Inputs) -> dict[str, Any]:
    """The workers' Deployment: no Service and no PDB, for a lost task is taken over by another worker."""
    container = {
        "name": "worker",
        "command": ["moorage", "worker"],
        "ports": _ports(resource, http=False),
        "resources": resource.spec.worker.resources,
        **_worker_probes(resource),
    }
    pod = template(resource, "worker", backend, inputs, container, grace_seconds(resource))
    replicas = resource.spec.worker.replicas
    return _deployment(resource, worker_name(resource), "worker", replicas, False, pod)
