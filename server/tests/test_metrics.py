"""Metrics: the names that dashboards know, and labels that stay bounded."""

from __future__ import annotations

import gc
import os

from moorage.metrics import EVIDENCE, METHODS_MAX, Metrics

NAMES = (
    "rpc_calls_total", "rpc_call_duration_seconds", "rpc_grace_wait_seconds", "rpc_late_results_total",
    "rpc_evidence_total", "rpc_fetchsockets_timeouts_total", "redis_stream_lag_ms", "websocket_connections",
    "broadcast_deliveries_total", "drain_state",
)  # fmt: skip


def test_names_are_those_of_the_protocol() -> None:
    text = Metrics().render()[0].decode()
    for name in NAMES:
        assert f"# HELP {name}" in text or f"# HELP {name.removesuffix('_total')}" in text


def test_methods_are_bounded_and_carry_no_machine_id() -> None:
    metrics = Metrics()
    metrics.call_ended("machine-7:bash", "success", 0.1)
    for number in range(METHODS_MAX + 50):
        metrics.call_ended(f"x:m{number}", "timeout", 1)
    text = metrics.render()[0].decode()
    assert 'rpc_calls_total{method="bash",result="success"} 1.0' in text
    assert "machine-7" not in text
    labels = {
        line.split('method="')[1].split('"')[0] for line in text.splitlines() if "rpc_calls_total{" in line
    }
    assert len(labels) == METHODS_MAX + 1
    assert "other" in labels


def test_two_applications_do_not_share() -> None:
    one, two = Metrics(), Metrics()
    one.call_ended("m", "success", 0)
    assert 'method="m"' not in two.render()[0].decode()


def test_deliveries_are_read_at_the_scrape_and_every_kind_of_evidence_is_there_from_the_start() -> None:
    metrics = Metrics()
    metrics.read_deliveries = lambda: 7
    text = metrics.render()[0].decode()
    assert "\nbroadcast_deliveries_total 7.0\n" in text
    assert "# TYPE broadcast_deliveries_total counter" in text
    assert all(f'rpc_evidence_total{{kind="{kind}"}} 0.0' in text for kind in EVIDENCE)


def test_what_was_skipped_is_read_at_the_scrape_and_so_is_what_the_process_cost() -> None:
    metrics = Metrics()
    metrics.read_malformed = lambda: {"stream": 3, "member": 0}
    text = metrics.render()[0].decode()
    assert '\ncluster_malformed_total{where="stream"} 3.0\n' in text
    assert '\ncluster_malformed_total{where="member"} 0.0\n' in text
    assert "\nprocess_cpu_seconds_total " in text


def test_open_descriptors_are_those_of_this_process() -> None:
    def count(metrics: Metrics) -> float:
        lines = metrics.render()[0].decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("process_open_fds "))

    metrics = Metrics()
    gc.collect()  # what tests before left must not be closed just now
    before = count(metrics)
    with open(os.devnull), open(os.devnull):
        assert count(metrics) == before + 2
    assert count(metrics) == before
