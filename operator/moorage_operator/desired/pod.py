"""The pod of server and worker: environment, security, scheduling."""

from __future__ import annotations

from typing import Any

from moorage_operator.desired.inputs import Inputs
from moorage_operator.desired.labels import (
    BACKEND,
    INPUTS,
    Component,
    peers_name,
    secret_key_name,
    selector,
    server_name,
    url_name,
)
from moorage_operator.plan import MANAGED, NONE
from moorage_operator.resource import KeyRef, Resource

PORT, METRICS_PORT = 3005, 9090
CA_FOLDER = "/etc/moorage/redis-ca"
USER = 65532
"""[uid, gid] The usual number for "nonroot" in distroless images; the image needs no entry for it."""


def from_secret(ref: KeyRef) -> dict[str, Any]:
    return {"valueFrom": {"secretKeyRef": {"name": ref.name, "key": ref.key}}}


def secret_key_ref(resource: Resource) -> KeyRef:
    """Where ``SECRET_KEY`` comes from: the user's Secret, else the generated one."""
    return resource.spec.secret_key_ref or KeyRef(name=secret_key_name(resource), key="secret-key")


def environment(resource: Resource, backend: str) -> list[dict[str, Any]]:
    """All reserved variables, always and first, then the user's; an unset one is an empty string."""
    spec = resource.spec
    external = spec.redis.external
    url: dict[str, Any] = {"value": ""}
    ca_file = ""
    if backend == MANAGED:
        url = from_secret(KeyRef(name=url_name(resource), key="url"))
    elif backend != NONE and external is not None:
        url = from_secret(external.url_secret_key_ref)
        if external.ca_secret_key_ref is not None:
            ca_file = f"{CA_FOLDER}/{external.ca_secret_key_ref.key}"
    state = spec.redis.state_url_secret_key_ref if backend != NONE else None
    return [
        {"name": "PORT", "value": str(PORT)},
        {"name": "METRICS_ENABLED", "value": "true" if spec.metrics.enabled else "false"},
        {"name": "METRICS_PORT", "value": str(METRICS_PORT)},
        {"name": "SECRET_KEY", **from_secret(secret_key_ref(resource))},
        {"name": "REDIS_URL", **url},
        {"name": "STATE_URL", **(from_secret(state) if state else {"value": ""})},
        {"name": "REDIS_CA_FILE", "value": ca_file},
        {"name": "MOORAGE_PEERS_HOST", "value": f"{peers_name(resource)}.{resource.namespace}.svc"},
        {"name": "MOORAGE_DRAIN_MS", "value": str(spec.drain.window_ms)},
        {"name": "MOORAGE_RPC_RECONNECT_GRACE_MS", "value": str(spec.rpc.reconnect_grace_ms)},
        {"name": "MOORAGE_RPC_CALL_TIMEOUT_MS", "value": str(spec.rpc.call_timeout_ms)},
        {"name": "MOORAGE_RPC_CALL_TIMEOUT_MAX_MS", "value": str(spec.rpc.call_timeout_max_ms)},
        *(env.model_dump(by_alias=True, exclude_none=True, exclude_unset=True) for env in spec.env),
    ]


def security() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def template(
    resource: Resource,
    component: Component,
    backend: str,
    inputs: Inputs,
    container: dict[str, Any],
    grace_seconds: int,
) -> dict[str, Any]:
    """Pod template around ``container``. Nothing of the operator's version may enter: it would roll every pod."""
    spec = resource.spec
    scheduling = spec.scheduling
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    mounts = [{"name": "tmp", "mountPath": "/tmp"}]
    external = spec.redis.external
    if backend not in (NONE, MANAGED) and external is not None and external.ca_secret_key_ref is not None:
        volumes.append({"name": "redis-ca", "secret": {"secretName": external.ca_secret_key_ref.name}})
        mounts.append({"name": "redis-ca", "mountPath": CA_FOLDER})
    pod: dict[str, Any] = {
        "serviceAccountName": server_name(resource),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "image": spec.image,
                "imagePullPolicy": spec.image_pull_policy,
                "env": environment(resource, backend),
                "envFrom": [
                    e.model_dump(by_alias=True, exclude_none=True, exclude_unset=True) for e in spec.env_from
                ],
                "securityContext": security(),
                "volumeMounts": mounts,
                **container,
            }
        ],
        "volumes": volumes,
    }
    place(resource, pod)
    if scheduling.affinity:
        pod["affinity"] = scheduling.affinity
    if scheduling.tolerations:
        pod["tolerations"] = scheduling.tolerations
    if scheduling.priority_class_name:
        pod["priorityClassName"] = scheduling.priority_class_name
    if scheduling.topology_spread:
        pod["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": key,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(resource, component)},
                "matchLabelKeys": ["pod-template-hash"],
            }
            for key in ("topology.kubernetes.io/zone", "kubernetes.io/hostname")
        ]
    return {
        "metadata": {
            "labels": {**spec.pod_labels, **selector(resource, component)},
            "annotations": {**spec.pod_annotations, BACKEND: backend, INPUTS: inputs.fingerprint},
        },
        "spec": pod,
    }


def place(resource: Resource, pod: dict[str, Any]) -> None:
    """What also holds for Redis."""
    if resource.spec.image_pull_secrets:
        pod["imagePullSecrets"] = [{"name": ref.name} for ref in resource.spec.image_pull_secrets]
    if resource.spec.scheduling.node_selector:
        pod["nodeSelector"] = resource.spec.scheduling.node_selector
