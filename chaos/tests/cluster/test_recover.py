"""A harness that is killed by SIGKILL in mid fault, then `run_all.py recover`: the system is as before.

The system is the one that `run_all.py --driver kubernetes --deploy` makes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage_chaos.deploy.commands import ROOT
from moorage_chaos.drivers import procfs
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import RTS, Api, Where
from moorage_chaos.drivers.kubernetes_nodes import Nodes
from moorage_chaos.drivers.kubernetes_object import is_settled
from moorage_chaos.drivers.kubernetes_pods import Pod, selector
from moorage_chaos.faults.journal import recover

NAMESPACE = os.environ.get("MOORAGE_CHAOS_NAMESPACE", "realtime")
NAME = os.environ.get("MOORAGE_CHAOS_NAME", "chat")
PLAY_S = 120.0
BACK_S = 120.0
HEALED_S = 60.0
"""From the end of a harness to the end of what its helpers did; each look enters every node anew."""
OBJECT = f"{RTS}/namespaces/{NAMESPACE}/realtimeservers/{NAME}"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/statefulsets/{NAME}-redis"


def ask(work: Callable[[Api], Any]) -> Any:
    """One look at the cluster."""

    async def run() -> Any:
        api = await Api.connect(Where())
        try:
            return await work(api)
        finally:
            await api.close()

    return asyncio.run(run())


def picture() -> dict[str, Any]:
    """What must be as before: the object's spec, the children's, nodes, Services, and that all is well."""

    async def look(api: Api) -> dict[str, Any]:
        body = await api.get(OBJECT)
        services = await api.items(f"/api/v1/namespaces/{NAMESPACE}/services")
        nodes = await api.items("/api/v1/nodes")
        redis = await api.find(SET)
        return {
            "spec": body["spec"],
            "settled": is_settled(body),
            "services": sorted(service["metadata"]["name"] for service in services),
            "unschedulable": [
                node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")
            ],
            "redis": redis and (redis["spec"]["replicas"], (redis.get("status") or {}).get("readyReplicas")),
        }

    found: dict[str, Any] = ask(look)
    return found


def until(what: str, probe: Callable[[], Any], seconds: float) -> Any:
    end, trouble = time.monotonic() + seconds, ""
    while True:
        try:
            if answer := probe():
                return answer
        except DriverError as error:  # a busy API server may fail one look of many
            trouble = f" ({error})"
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}{trouble}"
        time.sleep(0.3)


def settled() -> dict[str, Any]:
    """The picture that must be there again in the end: all is well, and Redis is told to be ready, too."""

    def well() -> dict[str, Any] | None:
        seen = picture()
        redis = seen["redis"]
        return seen if seen["settled"] and (not redis or redis[0] == redis[1]) else None

    found: dict[str, Any] = until("the system is settled", well, BACK_S)
    return found


def as_before(before: dict[str, Any]) -> None:
    """Wait until nothing differs; fails with what does."""
    end = time.monotonic() + BACK_S
    while difference := {k: (v, before[k]) for k, v in picture().items() if v != before[k]}:
        assert time.monotonic() < end, difference
        time.sleep(0.5)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """`run_all.py` with one row; what is left of it is killed at the end."""
    made: list[subprocess.Popen[bytes]] = []

    def start(row: str) -> subprocess.Popen[bytes]:
        command = [
            sys.executable,
            str(ROOT / "run_all.py"),
            "--driver",
            "kubernetes",
            "--namespace",
            NAMESPACE,
        ]
        command += ["--name", NAME, "--only", row, "--report", str(tmp_path / row)]
        with (tmp_path / "out").open("wb") as out:
            made.append(subprocess.Popen(command, stdout=out, stderr=out))
        return made[-1]

    yield start
    for process in made:
        if process.poll() is None:
            process.kill()
        process.wait(10)


def kill_all(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL of the runner and of its lane, the lane first: nobody gets to undo anything."""
    lanes = [(pid, procfs.start_time(pid)) for pid in children(process.pid)]
    for pid, _ in lanes:
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait(10)
    # `recover` leaves alone what a living harness does.
    until("its lane is gone", lambda: not any(procfs.is_same(*lane) for lane in lanes), 10)


def stopped() -> list[str]:
    """Pods of which a process is stopped, as `look` of the helpers sees them."""

    async def look(api: Api) -> list[str]:
        nodes, found = Nodes(api), []
        try:
            for body in await api.items(PODS, selector(NAME)):
                pod = Pod.of(body, "server")
                if pod.running and not pod.going:
                    session = await nodes.session(pod.node)
                    seen = await session.request("look", pod=pod.uid, address="", port=3005, side="client")
                    if seen["stopped"] or seen["rules"]:
                        found.append(pod.name)
        finally:
            await nodes.close()
        return found

    names: list[str] = ask(look)
    return names


def test_redis_that_was_away_when_the_harness_died_is_back(
    play: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    before = settled()
    process = play("redis-restart-kept")
    until("Redis is away", lambda: picture()["redis"] == (0, None), PLAY_S)
    kill_all(process)
    broken = picture()
    assert broken["spec"]["paused"] is True, "the fault was still in force"
    told = recover()
    assert any("Redis" in line for line in told), told
    as_before(before)


def test_a_frozen_replica_wakes_even_before_recover(play: Callable[[str], subprocess.Popen[bytes]]) -> None:
    before = settled()
    process = play("freeze-replica")
    until("a replica is stopped", stopped, PLAY_S)
    kill_all(process)
    until("the helper woke it", lambda: not stopped(), HEALED_S)
    recover()
    as_before(before)


def test_rules_in_a_pods_network_are_gone_with_the_harness(
    play: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    before = settled()
    process = play("network-loss")
    until("a link is hurt", stopped, PLAY_S)
    kill_all(process)
    until("the helper removed its rules", lambda: not stopped(), HEALED_S)
    recover()
    as_before(before)


def test_nothing_is_left_to_recover() -> None:
    assert [line for line in recover() if "lives" not in line] == []
