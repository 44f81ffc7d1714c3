"""ServiceAccount, ServiceMonitor and NetworkPolicies."""

from __future__ import annotations

from typing import Any

from moorage_operator.desired.inputs import Inputs
from moorage_operator.desired.labels import (
    Component,
    child,
    redis_name,
    selector,
    server_name,
    worker_name,
)
from moorage_operator.desired.pod import METRICS_PORT, PORT
from moorage_operator.resource import GROUP, Resource

METRICS_NAMESPACE_LABEL = f"{GROUP}/metrics"
"""A namespace with this label (value "true") may scrape port 9090."""
REDIS_PORT = 6379


def service_account(resource: Resource) -> dict[str, Any]:
    return child(
        resource,
        "v1",
        "ServiceAccount",
        server_name(resource),
        "server",
        automountServiceAccountToken=False,
    )


def service_monitor(resource: Resource) -> dict[str, Any]:
    """Selects the headless Service, which also lists pods that are not ready."""
    return child(
        resource,
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        server_name(resource),
        "server",
        spec={
            "selector": {"matchLabels": selector(resource, "server")},
            "namespaceSelector": {"matchNames": [resource.namespace]},
            "endpoints": [{"port": "metrics", "path": "/metrics"}],
            "jobLabel": "app.kubernetes.io/instance",
        },
    )


def network_policies(resource: Resource, inputs: Inputs) -> list[dict[str, Any]]:
    """Server: 3005 from anywhere, 9090 from metrics namespaces and the operator. Redis: only from server and
    worker. Out: DNS, Redis, and between server pods."""
    scrapers = [
        {"namespaceSelector": {"matchLabels": {METRICS_NAMESPACE_LABEL: "true"}}},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": inputs.operator_namespace}}},
    ]
    metrics = {"from": scrapers, "ports": [_port(METRICS_PORT)]}
    dns = {"ports": [_port(53, "UDP"), _port(53)]}
    redis = resource.spec.redis
    out: list[dict[str, Any]] = [dns]
    if redis.mode == "Managed":
        out.append({"to": [_pods(resource, "redis")], "ports": [_port(REDIS_PORT)]})
    if redis.mode == "External":
        out.append({"ports": [_port(inputs.external_port or REDIS_PORT)]})
    if redis.state_url_secret_key_ref is not None:
        out.append({"ports": [_port(REDIS_PORT)]})
    between = {"to": [_pods(resource, "server")], "ports": [_port(PORT)]}
    policies = [
        _policy(
            resource, server_name(resource), "server", [{"ports": [_port(PORT)]}, metrics], [*out, between]
        )
    ]
    if resource.spec.worker.replicas:
        policies.append(_policy(resource, worker_name(resource), "worker", [metrics], out))
    if redis.mode == "Managed":
        clients = {
            "from": [_pods(resource, "server"), _pods(resource, "worker")],
            "ports": [_port(REDIS_PORT)],
        }
        policies.append(_policy(resource, redis_name(resource), "redis", [clients], []))
    return policies


def _port(number: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"port": number, "protocol": protocol}


def _pods(resource: Resource, component: Component) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": selector(resource, component)}}


def _policy(
    resource: Resource,
    name: str,
    component: Component,
    ingress: list[dict[str, Any]],
    egress: list[dict[str, Any]],
) -> dict[str, Any]:
    return child(
        resource,
        "networking.k8s.io/v1",
        "NetworkPolicy",
        name,
        component,
        spec={
            "podSelector": {"matchLabels": selector(resource, component)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    )
