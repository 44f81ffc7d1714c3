"""A bad API server: 409, 410, 429, silence, dropped watches. The operator converges, and storms nobody."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import fresh
from .proxy import Proxy
from .world import Cluster, One, Operator

COUNT = itertools.count(1)
FAULT_SECONDS = 8.0
"""[s] How long a fault is held, to see how often the operator asks meanwhile."""
CALM = 120
"""[requests in FAULT_SECONDS] A hot loop makes thousands; backoff makes a handful per object and watch. Watches that
began anew make some more for each kind: list, watch, and one list or two after the gap."""
HEALED_SECONDS = 60
"""[s] Until it is repaired after a fault: the backoff has doubled meanwhile."""


@pytest.fixture(scope="module")
def behind(crd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Cluster]]:
    folder = tmp_path_factory.mktemp("proxy")
    with Proxy(Path(os.environ["KUBECONFIG"])).running() as proxy:
        for cluster in fresh("moorage-faults"):
            operator = Operator(
                folder / "log", cluster.namespace, kubeconfig=proxy.kubeconfig(folder / "kubeconfig")
            )
            operator.start()
            yield proxy, cluster
            operator.stop()


@pytest.fixture
def one(behind: tuple[Proxy, Cluster]) -> Iterator[One]:
    """A running object of one replica without Redis."""
    one = One(behind[1], f"f{next(COUNT)}")
    one.apply(replicas=1, redis={"mode": "Disabled"})
    one.ready()
    yield one
    one.delete()


def held(proxy: Proxy) -> int:
    """Let a fault last; returns how often something was asked meanwhile."""
    began = time.monotonic()
    time.sleep(FAULT_SECONDS)  # the fault itself, not a wait for something
    return proxy.asked_since(began)


@pytest.mark.parametrize("status", [409, 429, 503])
def test_refused_writes_are_tried_again_without_a_storm(
    behind: tuple[Proxy, Cluster], one: One, status: int
) -> None:
    proxy = behind[0]
    proxy.refuse_writes = status
    try:
        one.cluster.kubectl("delete", "service", one.name)
        asked = held(proxy)
    finally:
        proxy.refuse_writes = None
    assert 1 <= asked <= CALM
    one.cluster.until("repaired", lambda: one.child("service"), HEALED_SECONDS)
    one.ready()


def test_refused_reads_too(behind: tuple[Proxy, Cluster], one: One) -> None:
    proxy = behind[0]
    proxy.refuse_reads = proxy.refuse_writes = 429
    try:
        one.cluster.kubectl("delete", "service", one.name)
        asked = held(proxy)
    finally:
        proxy.refuse_reads = proxy.refuse_writes = None
    assert asked <= CALM
    one.cluster.until("repaired", lambda: one.child("service"), HEALED_SECONDS)


@pytest.mark.parametrize("gone", [False, True], ids=["dropped", "410"])
def test_lost_watches_miss_nothing(behind: tuple[Proxy, Cluster], one: One, gone: bool) -> None:
    """What is deleted while nobody watches is never told: a list has no deletions."""
    proxy = behind[0]
    proxy.delay_seconds = 1.0  # so that the watches come back only after the deletion
    try:
        assert proxy.end_watches(gone=gone) >= 8
        one.cluster.kubectl("delete", "service", one.name, f"{one.name}-peers")
    finally:
        proxy.delay_seconds = 0.0
    one.cluster.until(
        "repaired", lambda: one.child("service") and one.child("service", "-peers"), HEALED_SECONDS
    )
    one.ready()
    assert held(proxy) <= CALM


def test_a_slow_api_server_only_takes_longer(behind: tuple[Proxy, Cluster], one: One) -> None:
    proxy = behind[0]
    proxy.delay_seconds = 2.0
    try:
        one.patch(replicas=0)
        one.told("Ready", "ScaledToZero", 120)
    finally:
        proxy.delay_seconds = 0.0
