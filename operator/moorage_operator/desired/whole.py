"""All children together, in the order in which they are written."""

from __future__ import annotations

from typing import Any

from moorage_operator.desired import access, availability, deployment, redis, service
from moorage_operator.desired.inputs import Inputs
from moorage_operator.plan import NONE, Plan, Render, Scale
from moorage_operator.resource import Resource


def children(
    resource: Resource, plan: Plan, inputs: Inputs, *, monitors: bool = True
) -> list[dict[str, Any]]:
    """Everything that is to exist now, besides the generated Secrets.

    A Deployment that the plan only scales is not in it (see :class:`~moorage_operator.plan.Scale`), and neither
    are the workers then. ``monitors``: the ServiceMonitor kind is known to the cluster.
    """
    spec = resource.spec
    objects = [access.service_account(resource), service.service(resource), service.peers(resource)]
    if plan.keep_redis:
        objects += [
            redis.config_map(resource),
            redis.url_secret(resource, inputs.password),
            redis.service(resource),
            redis.stateful_set(resource, inputs),
        ]
    if spec.network_policy.enabled:
        objects += access.network_policies(resource, inputs)
    if isinstance(plan.server, Render):
        objects.append(deployment.server(resource, plan.server, inputs))
        if spec.worker.replicas and plan.server.backend != NONE:
            objects.append(deployment.worker(resource, plan.server.backend, inputs))
    replicas = plan.server.replicas if isinstance(plan.server, (Render, Scale)) else 0
    if spec.disruption.mode == "Auto" and replicas > 1:
        objects.append(availability.pdb(resource))
    if spec.autoscaling is not None and resource.clustered:
        objects.append(availability.hpa(resource, spec.autoscaling))
    if spec.metrics.enabled and spec.metrics.service_monitor and monitors:
        objects.append(access.service_monitor(resource))
    return objects
