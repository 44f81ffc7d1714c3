"""PodDisruptionBudget and HorizontalPodAutoscaler."""

from __future__ import annotations

from typing import Any

from moorage_operator.desired.labels import child, selector, server_name
from moorage_operator.resource import API_VERSION, KIND, Autoscaling, Resource

CPU_TARGET_PERCENT = 80
"""[% of the request] Target when no metric is given."""
SCALE_DOWN_WINDOW_SECONDS = 600
"""[s] Each scale-down drops its sockets, so it is made rarer than Kubernetes' default of 300 s."""


def pdb(resource: Resource) -> dict[str, Any]:
    """Not to be rendered at one replica or none: it would block every node drain for ever."""
    return child(
        resource,
        "policy/v1",
        "PodDisruptionBudget",
        server_name(resource),
        "server",
        spec={
            "minAvailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": selector(resource, "server")},
        },
    )


def hpa(resource: Resource, wanted: Autoscaling) -> dict[str, Any]:
    """Writes the scale subresource of the ``RealtimeServer``, never the Deployment's, which the operator owns."""
    cpu = {
        "type": "Resource",
        "resource": {
            "name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": CPU_TARGET_PERCENT},
        },
    }
    return child(
        resource,
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        server_name(resource),
        "server",
        spec={
            "scaleTargetRef": {"apiVersion": API_VERSION, "kind": KIND, "name": resource.name},
            "minReplicas": wanted.min_replicas,
            "maxReplicas": wanted.max_replicas,
            "metrics": wanted.metrics or [cpu],
            "behavior": {
                "scaleDown": {
                    "stabilizationWindowSeconds": SCALE_DOWN_WINDOW_SECONDS,
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
                }
            },
        },
    )
