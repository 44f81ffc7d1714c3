"""A metric that a test sets, and that the real HPA controller reads: a stand-in behind the API server's aggregation."""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from .world import CLIENTS, STANDIN, Cluster

NAME = "external-metrics"
API = "v1beta1.external.metrics.k8s.io"
LABELS = {"app": NAME}


class Metric:
    """``set`` changes what every metric of that API is, in every namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def set(self, value: int) -> None:
        self._cluster.kubectl("exec", NAME, "--", "sh", "-c", f"echo {value} > /tmp/value")


@contextmanager
def external_metrics(cluster: Cluster) -> Iterator[Metric]:
    """The API, served from a pod in the cluster's namespace; gone afterwards, for a dead one blocks all namespaces."""
    certificate, key = own_certificate(f"{NAME}.{cluster.namespace}.svc")
    script = (CLIENTS / "external_metrics.py").read_text()
    objects = [
        {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": NAME}, "data": {"serve.py": script}},
        {
            "kind": "Secret",
            "apiVersion": "v1",
            "metadata": {"name": NAME},
            "stringData": {"tls.crt": certificate, "tls.key": key},
        },
        _pod(),
        {
            "kind": "Service",
            "apiVersion": "v1",
            "metadata": {"name": NAME},
            "spec": {"selector": LABELS, "ports": [{"port": 443, "targetPort": 6443}]},
        },
    ]
    cluster.kubectl("apply", "-f", "-", body={"kind": "List", "apiVersion": "v1", "items": objects})
    cluster.kubectl("wait", "--for=condition=Ready", f"pod/{NAME}", "--timeout=60s")
    try:
        cluster.kubectl("apply", "-f", "-", body=_service(cluster.namespace, certificate))
        cluster.kubectl("wait", "--for=condition=Available", f"apiservice/{API}", "--timeout=60s")
        yield Metric(cluster)
    finally:
        cluster.kubectl("delete", "apiservice", API, "--ignore-not-found")
        cluster.kubectl("delete", "pod,service,secret,configmap", NAME, "--ignore-not-found", "--wait=false")


def _pod() -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": STANDIN,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "/script/serve.py"],
        "readinessProbe": {"tcpSocket": {"port": 6443}, "periodSeconds": 1},
        "volumeMounts": [{"name": "script", "mountPath": "/script"}, {"name": "tls", "mountPath": "/tls"}],
    }
    volumes = [
        {"name": "script", "configMap": {"name": NAME}},
        {"name": "tls", "secret": {"secretName": NAME}},
    ]
    spec = {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "volumes": volumes,
    }
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": NAME, "labels": LABELS}, "spec": spec}


def _service(namespace: str, certificate: str) -> dict[str, Any]:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": NAME, "namespace": namespace, "port": 443},
            "caBundle": base64.b64encode(certificate.encode()).decode(),
        },
    }


def own_certificate(host: str) -> tuple[str, str]:
    """A self-signed certificate of one day and its key, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), secret.decode()
