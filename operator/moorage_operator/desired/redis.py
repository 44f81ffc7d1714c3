"""The managed Redis: one StatefulSet of one pod, its configuration, its address."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Any

from moorage_operator.desired.inputs import Inputs, acl_line, encoded, fingerprint, managed_url
from moorage_operator.desired.labels import TEMPLATE, child, redis_name, selector, url_name
from moorage_operator.desired.pod import place, security
from moorage_operator.resource import Resource

REDIS_USER = 999
"""[uid] `redis` in the official images (Alpine and Debian) and in Valkey's."""
SUFFIXES: dict[str, Decimal] = {"": Decimal(1), "m": Decimal("0.001")}
SUFFIXES |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)}
SUFFIXES |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}


def quantity(value: str | int) -> int:
    """[units, rounded down] A Kubernetes quantity such as ``256Mi`` or ``1.5G``; ``ValueError`` for anything else."""
    text = str(value)
    digits = text.rstrip("kKMGTPEim")
    suffix = text[len(digits) :]
    if suffix not in SUFFIXES:
        raise ValueError(f"not a quantity: {text}")
    try:
        return int(Decimal(digits) * SUFFIXES[suffix])
    except InvalidOperation:
        raise ValueError(f"not a quantity: {text}") from None


def configuration(resource: Resource) -> str:
    """redis.conf. Streams must never be evicted, and at most one second of writes is lost with the pod."""
    lines = [
        "dir /data",
        "appendonly yes",
        "appendfsync everysec",
        'save ""',
        "maxmemory-policy noeviction",
        "protected-mode no",
        "include /etc/moorage/auth/auth.conf",
    ]
    limit = resource.spec.redis.resources.get("limits", {}).get("memory")
    if limit is not None:
        # A quarter is left for the rewrite of the append-only file, buffers and fragmentation.
        lines.insert(0, f"maxmemory {quantity(limit) * 3 // 4}")
    return "\n".join(lines) + "\n"


def config_map(resource: Resource) -> dict[str, Any]:
    data = {"redis.conf": configuration(resource)}
    return child(resource, "v1", "ConfigMap", redis_name(resource), "redis", data=data)


def url_secret(resource: Resource, password: str | None) -> dict[str, Any]:
    """What the servers connect with and what Redis asks for, in one place, made from the password."""
    host = f"{redis_name(resource)}.{resource.namespace}.svc"
    data = encoded({"url": managed_url(host, password), "auth.conf": acl_line(password)})
    return child(resource, "v1", "Secret", url_name(resource), "redis", type="Opaque", data=data)


def service(resource: Resource) -> dict[str, Any]:
    return child(
        resource,
        "v1",
        "Service",
        redis_name(resource),
        "redis",
        spec={
            "type": "ClusterIP",
            "clusterIP": "None",
            # The name leads to a new pod as soon as that has an address: resolvers remember for seconds that it led
            # nowhere, and that time is to be over when Redis is ready. Connections before are refused, and tried again.
            "publishNotReadyAddresses": True,
            "selector": selector(resource, "redis"),
            "ports": [{"name": "redis", "port": 6379, "targetPort": "redis", "protocol": "TCP"}],
        },
    )


def stateful_set(resource: Resource, inputs: Inputs) -> dict[str, Any]:
    """One pod, no PDB (it would block drains); restarted when configuration or password change."""
    redis = resource.spec.redis
    labels = selector(resource, "redis")
    storage = redis.storage
    claim: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": inputs.storage or storage.size}},
    }
    if storage.class_name is not None:
        claim["storageClassName"] = storage.class_name
    annotations = {
        "moorage.dev/config": fingerprint(resource.uid, [configuration(resource), acl_line(inputs.password)])
    }
    pod = {"metadata": {"labels": labels, "annotations": annotations}, "spec": _pod(resource, inputs)}
    return child(
        resource,
        "apps/v1",
        "StatefulSet",
        redis_name(resource),
        "redis",
        annotations={TEMPLATE: fingerprint(resource.uid, pod)},
        spec={
            "replicas": 1,
            "serviceName": redis_name(resource),
            # OrderedReady would wait for ever for a pod with a bad image before it takes the corrected one.
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "persistentVolumeClaimRetentionPolicy": {
                "whenDeleted": "Retain" if storage.retain else "Delete",
                "whenScaled": "Retain",
            },
            "template": pod,
            "volumeClaimTemplates": [
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {"name": "data", "labels": labels},
                    "spec": claim,
                }
            ],
        },
    )


def _pod(resource: Resource, inputs: Inputs) -> dict[str, Any]:
    redis = resource.spec.redis
    answers = {"exec": {"command": ["sh", "-c", '[ "$(redis-cli -h 127.0.0.1 ping)" = PONG ]']}}
    container: dict[str, Any] = {
        "name": "redis",
        "image": redis.image,
        "imagePullPolicy": resource.spec.image_pull_policy,
        "command": ["redis-server", "/etc/moorage/redis.conf"],
        "ports": [{"name": "redis", "containerPort": 6379, "protocol": "TCP"}],
        "resources": redis.resources,
        # LOADING is no PONG: a Redis that reads its file is not ready, and must not be killed for it.
        "startupProbe": {**answers, "periodSeconds": 1, "timeoutSeconds": 5, "failureThreshold": 600},
        "readinessProbe": {**answers, "periodSeconds": 2, "timeoutSeconds": 2, "failureThreshold": 2},
        "livenessProbe": {
            "tcpSocket": {"port": "redis"},
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "securityContext": security(),
        "volumeMounts": [
            {"name": "data", "mountPath": "/data"},
            {"name": "config", "mountPath": "/etc/moorage/redis.conf", "subPath": "redis.conf"},
            {"name": "auth", "mountPath": "/etc/moorage/auth"},
        ],
    }
    if inputs.password:
        auth = redis.auth.secret_key_ref
        container["env"] = [
            {
                "name": "REDISCLI_AUTH",
                "valueFrom": {
                    "secretKeyRef": {
                        "name": auth.name if auth else f"{redis_name(resource)}-password",
                        "key": auth.key if auth else "password",
                    }
                },
            }
        ]
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": REDIS_USER,
            "runAsGroup": REDIS_USER,
            "fsGroup": REDIS_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": redis_name(resource)}},
            {
                "name": "auth",
                "secret": {
                    "secretName": url_name(resource),
                    "items": [{"key": "auth.conf", "path": "auth.conf"}],
                },
            },
        ],
    }
    place(resource, pod)
    return pod
