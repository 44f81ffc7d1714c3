"""The operator's own metrics, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from moorage_operator import __version__


class Metrics:
    """Names start with ``moorage_operator_``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prefix = "moorage_operator_"
        self.reconciles = Counter(
            prefix + "reconcile_total", "Passes by result.", ["result"], registry=self.registry
        )
        self.seconds = Histogram(
            prefix + "reconcile_seconds",
            "Duration of a pass.",
            buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 60),
            registry=self.registry,
        )
        self.requests = Counter(
            prefix + "api_requests_total",
            "Requests of ours to the API server; code 0: no answer.",
            ["verb", "code"],
            registry=self.registry,
        )
        self.queue = Gauge(prefix + "queue_depth", "Objects that wait for a pass.", registry=self.registry)
        self.relists = Counter(
            prefix + "relists_total",
            "Lists of everything after a gap in a watch, by the kind that showed it.",
            ["kind"],
            registry=self.registry,
        )
        self.writes = Counter(
            prefix + "child_writes_total", "Children written.", ["kind"], registry=self.registry
        )
        self.condition = Gauge(
            prefix + "condition",
            "1: true, 0: false, -1: unknown.",
            ["namespace", "name", "type"],
            registry=self.registry,
        )
        self.leader = Gauge(
            prefix + "leader", "1 while this process holds the lease.", registry=self.registry
        )
        info = Gauge(prefix + "info", "Version.", ["version"], registry=self.registry)
        info.labels(__version__).set(1)

    def request(self, verb: str, status: int) -> None:
        self.requests.labels(verb, str(status)).inc()

    def conditions(self, namespace: str, name: str, conditions: list[dict[str, str]]) -> None:
        for condition in conditions:
            value = {"True": 1, "False": 0}.get(condition["status"], -1)
            self.condition.labels(namespace, name, condition["type"]).set(value)

    def forget(self, namespace: str, name: str) -> None:
        for kind in ("Ready", "Available", "Progressing", "Degraded", "RedisReady", "ConfigurationWarning"):
            try:
                self.condition.remove(namespace, name, kind)
            except KeyError:
                continue

    def text(self) -> bytes:
        return generate_latest(self.registry)
