"""Every metric of a replica, with the names and labels that dashboards know (PROTOCOL, "Metrics").

One :class:`Metrics` per application, with a registry of its own. Labels are bounded: a method's label is what
stands after its last ``:``, at most :data:`METHODS_MAX` of them, then ``other``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

METHODS_MAX = 200
"""Distinct method labels before ``other`` (PROTOCOL, "Metrics")."""
CALL_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30)
"""Seconds (PROTOCOL, "Metrics")."""

EVIDENCE = ("goodbye", "no_receiver", "generation", "beats", "socket_gone", "look_ups")
"""Kinds of positive evidence: of a replica (:data:`moorage.cluster.inboxes.GoneBy`), of a socket, and of a socket on
a node that is no member."""

APPEND_RESULTS = ("ok", "transient", "unlogged", "deleted")
"""``unlogged``: gone out without an id, the log was down. ``deleted``: the session is no more."""

PUBLISH_DROPS = ("in_flight", "unavailable", "failed")
"""Too many in flight; no connection; Redis refused, or its answer was lost."""

READER_KINDS = ("websocket", "sse", "socketio")
"""The ways to read an event log (:data:`moorage.events.readers.base.KINDS`)."""

TASK_ENDS = ("done", "failed", "handed_back", "stuck", "superseded")
"""How an attempt at a task ends in a worker (:mod:`moorage.tasks.execution`)."""


class FollowedLog(Protocol):
    """What is needed of :class:`moorage.events.log.EventLog`."""

    on_append: Callable[[str], None]
    on_publish_dropped: Callable[[str], None]
    on_slow: Callable[[str], None]

    @property
    def breaker(self) -> int: ...


class Metrics:
    """The metrics, as attributes."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._methods: set[str] = set()
        self._ended: dict[tuple[str, str], tuple[Counter, Histogram]] = {}
        r = self.registry
        self.rpc_calls = Counter(
            "rpc_calls_total", "Calls that ended, by how", ["method", "result"], registry=r
        )
        self.rpc_duration = Histogram(
            "rpc_call_duration_seconds",
            "From arrival of a call to its end",
            ["method", "result"],
            buckets=CALL_BUCKETS,
            registry=r,
        )
        self.rpc_grace_wait = Histogram(
            "rpc_grace_wait_seconds", "Waits of calls for a target", buckets=CALL_BUCKETS, registry=r
        )
        self.rpc_late_results = Counter(
            "rpc_late_results_total", "Answers after the end of their call", registry=r
        )
        self.rpc_evidence = Counter(
            "rpc_evidence_total", "Calls ended by evidence, by its kind", ["kind"], registry=r
        )
        self.rpc_lookup_timeouts = Counter(
            "rpc_fetchsockets_timeouts_total",
            "Questions to all replicas that stayed incomplete",
            ["context"],
            registry=r,
        )
        for kind in EVIDENCE:
            self.rpc_evidence.labels(kind)
        for context in ("lookup", "presence"):
            self.rpc_lookup_timeouts.labels(context)
        self.registrations = Gauge(
            "rpc_registrations", "Registrations this replica knows, cluster-wide", registry=r
        )
        self.in_flight = Gauge("rpc_calls_in_flight", "Calls of this replica's sockets", registry=r)
        self.members = Gauge("cluster_members", "Replicas this one sees alive, itself included", registry=r)
        self.stream_lag = Gauge(
            "redis_stream_lag_ms", "Distance to the stream's head; NaN: unknown", registry=r
        )
        self.stream_lag.set(float("nan"))
        self.connections = Gauge("websocket_connections", "Connected sockets", ["client_type"], registry=r)
        for client_type in ("user-scoped", "session-scoped", "machine-scoped"):
            self.connections.labels(client_type)
        self.recoveries = Counter(
            "connection_recoveries_total",
            "Clients that came back, by what became of them",
            ["result"],
            registry=r,
        )
        for result in ("recovered", "new"):
            self.recoveries.labels(result)
        self.event_appends = Counter(
            "event_log_appends_total", "Events reported, by what became of them", ["result"], registry=r
        )
        for result in APPEND_RESULTS:
            self.event_appends.labels(result)
        self.event_breaker = Gauge(
            "event_log_breaker_state",
            "0: closed, events are logged; 1: open; 2: a probe is under way",
            registry=r,
        )
        self.event_publishes_dropped = Counter(
            "event_publish_dropped_total", "Live messages not published, by reason", ["reason"], registry=r
        )
        for reason in PUBLISH_DROPS:
            self.event_publishes_dropped.labels(reason)
        self.event_readers_slow = Counter(
            "event_readers_slow_total", "Readers cut off for being slow (4408)", ["kind"], registry=r
        )
        for kind in READER_KINDS:
            self.event_readers_slow.labels(kind)
        self.tasks_running = Gauge("tasks_running", "Tasks that this process runs", registry=r)
        self.tasks_ended = Counter(
            "tasks_ended_total", "Attempts that ended here, by how", ["result"], registry=r
        )
        for result in TASK_ENDS:
            self.tasks_ended.labels(result)
        self.read_deliveries: Callable[[], int] = lambda: 0
        r.register(_Deliveries(self))
        self.read_malformed: Callable[[], Mapping[str, int]] = dict
        """What was skipped, by where it came from: ``stream``, ``request``, ``member``."""
        r.register(_Malformed(self))
        self.drain_state = Gauge("drain_state", "0: serving, 1: draining, 2: drained", registry=r)

    def method_label(self, method: str) -> str:
        label = method.rpartition(":")[2][:64]
        if label not in self._methods:
            if len(self._methods) >= METHODS_MAX:
                return "other"
            self._methods.add(label)
        return label

    def call_ended(self, method: str, result: str, seconds: float) -> None:
        """``result``: ``success`` or a code of :data:`moorage.errors.RPC_CODES`."""
        key = (self.method_label(method), result)
        children = self._ended.get(key)
        if children is None:
            # labels() costs more than all the rest of counting a call.
            children = self._ended[key] = (self.rpc_calls.labels(*key), self.rpc_duration.labels(*key))
        children[0].inc()
        children[1].observe(seconds)

    def follow(self, log: FollowedLog) -> None:
        """Count what an event log does."""
        # labels() costs more than all the rest of counting.
        appends = {result: self.event_appends.labels(result) for result in APPEND_RESULTS}
        dropped = {reason: self.event_publishes_dropped.labels(reason) for reason in PUBLISH_DROPS}
        log.on_append = lambda result: appends[result].inc()
        log.on_publish_dropped = lambda reason: dropped[reason].inc()
        log.on_slow = lambda kind: self.event_readers_slow.labels(kind).inc()
        self.gauge(self.event_breaker, lambda: int(log.breaker))

    def gauge(self, gauge: Gauge, read: Callable[[], float]) -> None:
        """Read ``gauge`` at every scrape."""
        gauge.set_function(read)

    def render(self) -> tuple[bytes, str]:
        """``(body, content type)`` of ``GET /metrics``."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class _Deliveries(Collector):
    """Counted where broadcasts are written, read at a scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[CounterMetricFamily]:
        yield CounterMetricFamily(
            "broadcast_deliveries",
            "Copies of broadcasts written to local sockets",
            value=self._metrics.read_deliveries(),
        )


class _Malformed(Collector):
    """Counted where messages of the cluster are read, read at a scrape."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[CounterMetricFamily]:
        found = CounterMetricFamily(
            "cluster_malformed", "Stream entries and channel messages that were skipped", labels=["where"]
        )
        for where, count in self._metrics.read_malformed().items():
            found.add_metric([where], count)
        yield found
