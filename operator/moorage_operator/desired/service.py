"""Services: the one that clients reach, and the headless one by which replicas find each other."""

from __future__ import annotations

from typing import Any

from moorage_operator.desired.labels import child, peers_name, selector, server_name
from moorage_operator.desired.pod import METRICS_PORT, PORT
from moorage_operator.resource import Resource


def service(resource: Resource) -> dict[str, Any]:
    wanted = resource.spec.service
    port: dict[str, Any] = {"name": "http", "port": wanted.port, "targetPort": "http", "protocol": "TCP"}
    if wanted.node_port is not None:
        port["nodePort"] = wanted.node_port
    return child(
        resource,
        "v1",
        "Service",
        server_name(resource),
        "server",
        annotations=wanted.annotations or None,
        spec={"type": wanted.type, "selector": selector(resource, "server"), "ports": [port]},
    )


def peers(resource: Resource) -> dict[str, Any]:
    """Also lists pods that are not ready: a replica asks them why it alone does not reach Redis."""
    ports = [{"name": "http", "port": PORT, "targetPort": "http", "protocol": "TCP"}]
    if resource.spec.metrics.enabled:
        ports.append({"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics", "protocol": "TCP"})
    return child(
        resource,
        "v1",
        "Service",
        peers_name(resource),
        "server",
        spec={
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(resource, "server"),
            "ports": ports,
        },
    )
