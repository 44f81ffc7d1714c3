"""What a server pod's /metrics says, through the API server. Parsing is pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from moorage_operator.desired.pod import METRICS_PORT
from moorage_operator.errors import ApiError, Forbidden
from moorage_operator.kubectl.cluster import POD_SECONDS, Body, Cluster

AT_ONCE = 8
"""[requests] Pods asked side by side."""


@dataclass(frozen=True, slots=True)
class Scrape:
    """None: the pod does not say. ``error`` is why there is nothing at all."""

    clients: dict[str, int] = field(default_factory=dict)
    """client type → connected sockets"""
    registrations: int | None = None
    """Registrations that this replica knows, of the whole cluster."""
    calls: int | None = None
    """Calls in flight of this replica's sockets."""
    members: int | None = None
    """Replicas that this one sees alive, itself included."""
    lag_ms: float | None = None
    """[ms] Distance to the stream's head."""
    draining: int | None = None
    """0 serving, 1 draining, 2 drained"""
    error: str = ""

    @property
    def connections(self) -> int | None:
        return sum(self.clients.values()) if self.clients else None


def scraped(text: str) -> Scrape:
    """From the Prometheus text format; what is not understood is left out, a text that is none is an error."""
    clients: dict[str, int] = {}
    values: dict[str, float] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if not math.isfinite(sample.value):
                    continue
                if sample.name == "websocket_connections":
                    kind = sample.labels.get("client_type", "all")
                    clients[kind] = clients.get(kind, 0) + int(sample.value)
                else:
                    values[sample.name] = sample.value
    except ValueError as error:
        return Scrape(error=f"no metrics: {error}"[:120])

    def whole(name: str) -> int | None:
        return int(values[name]) if name in values else None

    return Scrape(
        clients=clients,
        registrations=whole("rpc_registrations"),
        calls=whole("rpc_calls_in_flight"),
        members=whole("cluster_members"),
        lag_ms=values.get("redis_stream_lag_ms"),
        draining=whole("drain_state"),
    )


def scrape(cluster: Cluster, pod: Body) -> Scrape:
    """Of one pod; never raises for what the pod or the API server does."""
    metadata = pod["metadata"]
    try:
        return scraped(cluster.page(metadata["namespace"], metadata["name"], METRICS_PORT, "metrics"))
    except Forbidden:
        return Scrape(error="forbidden: you need get on pods/proxy")
    except ApiError as error:
        return Scrape(error=_short(str(error)))


def scrape_all(cluster: Cluster, pods: Iterable[Body]) -> dict[str, Scrape]:
    """pod name → what it says, of pods that run; asked side by side."""
    asked = [pod for pod in pods if is_running(pod)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = pool.map(lambda pod: scrape(cluster, pod), asked)
        return {pod["metadata"]["name"]: answer for pod, answer in zip(asked, answers, strict=True)}


def is_running(pod: Body) -> bool:
    """It has an address, and a container that could answer."""
    status = pod.get("status") or {}
    states = [container.get("state") or {} for container in status.get("containerStatuses") or []]
    return bool(status.get("podIP")) and any("running" in state for state in states)


def _short(message: str) -> str:
    """The end of the chain of causes is what helps."""
    if "timed out" in message:
        return f"no answer within {POD_SECONDS:.0f} s"
    return message.rsplit("error trying to reach service: ", 1)[-1][-120:]
