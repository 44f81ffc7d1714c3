"""Names, labels and owners."""

from __future__ import annotations

from typing import Any, Literal

from moorage_operator.resource import API_VERSION, GROUP, KIND, Resource

Component = Literal["server", "worker", "redis"]

BACKEND = f"{GROUP}/backend"
"""Pod annotation: what the pod was started with, see :mod:`moorage_operator.plan`."""
INPUTS = f"{GROUP}/inputs"
"""Pod annotation: keyed hash of every referenced Secret and ConfigMap; another value rolls once."""
TEMPLATE = f"{GROUP}/template"
"""Annotation of the StatefulSet: keyed hash of its pod template, to announce a restart before it happens."""


def selector(resource: Resource, component: Component) -> dict[str, str]:
    """The three labels that stand in every selector."""
    return {
        "app.kubernetes.io/name": "moorage",
        "app.kubernetes.io/instance": resource.name,
        "app.kubernetes.io/component": component,
    }


def selector_text(resource: Resource, component: Component) -> str:
    """The same as a string, as ``status.selector`` wants it."""
    return ",".join(f"{key}={value}" for key, value in selector(resource, component).items())


def server_name(resource: Resource) -> str:
    return resource.name


def peers_name(resource: Resource) -> str:
    return f"{resource.name}-peers"


def worker_name(resource: Resource) -> str:
    return f"{resource.name}-worker"


def redis_name(resource: Resource) -> str:
    return f"{resource.name}-redis"


def secret_key_name(resource: Resource) -> str:
    return f"{resource.name}-secret-key"


def password_name(resource: Resource) -> str:
    return f"{resource.name}-redis-password"


def url_name(resource: Resource) -> str:
    return f"{resource.name}-redis-url"


def child(
    resource: Resource,
    api_version: str,
    kind: str,
    name: str,
    component: Component,
    *,
    annotations: dict[str, str] | None = None,
    **rest: Any,
) -> dict[str, Any]:
    """An object owned by ``resource``: it goes when the owner goes, by Kubernetes' own garbage collection."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": resource.namespace,
        "labels": {**selector(resource, component), "app.kubernetes.io/managed-by": "moorage-operator"},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": KIND,
                "name": resource.name,
                "uid": resource.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    if annotations:
        metadata["annotations"] = annotations
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}
