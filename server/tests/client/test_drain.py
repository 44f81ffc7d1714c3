from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.client import Caller, Daemon

from .replicas import Cluster, Front, until
from .test_call import Gate


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.client.connection.HANDOVER_PAUSES_S", (0.01, 0.02, 0.03))
    monkeypatch.setattr("moorage.client.connection.LINGER_S", 0.1)
    monkeypatch.setattr("moorage.client.connection.DEADLINE_SLACK_S", 0.1)


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def daemon(front: Front, gate: Gate) -> AsyncIterator[Daemon]:
    daemon = Daemon(front.url, "good", machine_id="m1")
    daemon.add_method("gate", gate)
    async with daemon:
        yield daemon
        await daemon.stop(grace=0)


async def test_a_daemon_registers_elsewhere_before_it_lets_go(
    cluster: Cluster, front: Front, daemon: Daemon, gate: Gate
) -> None:
    states: list[str] = []
    daemon.on_state(states.append)
    superseded: list[str] = []
    daemon.on_superseded(superseded.append)
    async with Caller(front.url, "good") as caller:
        call = asyncio.create_task(caller.call("gate", "in flight"))
        await until(lambda: gate.started)
        homes: list[str | None] = []
        front.default = "b"
        cluster.register_delay = 0.05
        old = daemon.sid
        await cluster.replicas["a"].sio.emit("server-draining", {"deadlineMs": 4e12}, to=old)
        while daemon.replica != "b":
            homes.append(cluster.home("gate"))
            await asyncio.sleep(0.005)
        await daemon.registered()
        # At no moment was nobody registered, and the old connection still carries the call.
        assert set(homes) <= {"a", "b"}
        assert old in cluster.replicas["a"].sids
        gate.open.set()
        assert await call == "in flight"
        assert await caller.call("gate", "after") == "after"
        await until(lambda: old not in cluster.replicas["a"].sids)
    assert ("a", old, "client disconnect") in cluster.gone
    assert states == []
    assert superseded == []


async def test_a_caller_switches_new_calls_and_keeps_the_old_ones(
    cluster: Cluster, front: Front, daemon: Daemon, gate: Gate
) -> None:
    async with Caller(front.url, "good") as caller:
        old = caller.sid
        call = asyncio.create_task(caller.call("gate", "in flight"))
        await until(lambda: gate.started)
        front.default = "b"
        await cluster.replicas["a"].sio.emit("server-draining", {"deadlineMs": 4e12}, to=old)
        await until(lambda: caller.replica == "b")
        late = asyncio.create_task(caller.call("gate", "after"))
        await until(lambda: len(gate.started) == 2)
        assert [(name, p["params"]) for name, _, event, p in cluster.seen if event == "rpc-call"] == [
            ("a", "in flight"),
            ("b", "after"),
        ]
        gate.open.set()
        assert await asyncio.gather(call, late) == ["in flight", "after"]
        await until(lambda: old not in cluster.replicas["a"].sids)


async def test_calls_all_through_a_drain_of_both_sides(
    cluster: Cluster, front: Front, daemon: Daemon, gate: Gate
) -> None:
    gate.open.set()
    async with Caller(front.url, "good") as caller:
        front.default = "b"
        drained = asyncio.create_task(cluster.replicas["a"].drain())
        number = 0
        while cluster.replicas["a"].sids:
            assert await caller.call("gate", number) == number
            number += 1
        await drained
        assert (daemon.replica, caller.replica, cluster.home("gate")) == ("b", "b", "b")
    assert gate.ended == list(range(number))


async def test_the_deadline_ends_what_still_runs(
    cluster: Cluster, front: Front, daemon: Daemon, gate: Gate
) -> None:
    async with Caller(front.url, "good") as caller:
        call = asyncio.create_task(caller.call("gate", 1))
        await until(lambda: gate.started)
        front.default = "b"
        await cluster.replicas["a"].drain(deadline_s=0.3)
        with pytest.raises(Exception, match="disconnect"):
            await call
        await until(lambda: not cluster.replicas["a"].sids)
        assert caller.replica == "b"


async def test_it_goes_on_until_another_replica_answers(
    cluster: Cluster, front: Front, daemon: Daemon
) -> None:
    front.next = ["a", "a", "b"]
    await cluster.replicas["a"].drain()
    await until(lambda: daemon.replica == "b")
    assert len(cluster.payloads("rpc-register")) == 2  # not on the two in between
    await until(lambda: not cluster.replicas["a"].sids)


async def test_after_three_tries_it_stays(cluster: Cluster, front: Front, daemon: Daemon, gate: Gate) -> None:
    gate.open.set()
    old = daemon.sid
    await cluster.replicas["a"].drain()
    await until(lambda: len(cluster.gone) == 3)
    assert daemon.sid == old
    async with Caller(front.url, "good") as caller:
        assert await caller.call("gate", 1) == 1
    front.default = "b"
    front.cut()
    await until(lambda: daemon.replica == "b")
    await daemon.registered()


async def test_a_cut_during_the_handover_is_no_problem(
    cluster: Cluster, front: Front, daemon: Daemon, gate: Gate
) -> None:
    gate.open.set()
    cluster.register_delay = 0.2
    front.default = "b"
    await cluster.replicas["a"].drain()
    await until(lambda: cluster.replicas["b"].sids)
    front.cut()
    await until(lambda: not cluster.replicas["a"].sids)
    await daemon.registered()
    async with Caller(front.url, "good") as caller:
        assert await caller.call("gate", 1) == 1
    assert len(cluster.replicas["b"].sids) <= 1


async def test_nobody_else_there_keeps_the_connection(cluster: Cluster, front: Front, daemon: Daemon) -> None:
    front.default = None
    before = front.accepted
    await cluster.replicas["a"].drain()
    await until(lambda: front.accepted >= before + 3)
    assert daemon.state == "connected"
    assert daemon.replica == "a"


async def test_a_stop_during_the_handover_leaves_nothing(
    cluster: Cluster, front: Front, daemon: Daemon
) -> None:
    cluster.register_delay = 10
    front.default = "b"
    await cluster.replicas["a"].drain()
    await until(lambda: cluster.replicas["b"].sids)
    await daemon.stop()
    await until(lambda: not cluster.replicas["a"].sids and not cluster.replicas["b"].sids)


async def test_broadcasts_during_a_handover_come_once(cluster: Cluster, front: Front, daemon: Daemon) -> None:
    got: list[Any] = []
    gate_call: asyncio.Task[Any] | None = None
    async with Caller(front.url, "good") as caller:
        caller.on("update", lambda payload: got.append(payload["id"]))
        caller.on("ephemeral", lambda payload: got.append(payload["type"]))
        gate_call = asyncio.create_task(caller.call("gate", 1))
        await until(lambda: cluster.payloads("rpc-call"))
        front.default = "b"
        await cluster.replicas["a"].sio.emit("server-draining", {"deadlineMs": 4e12}, to=caller.sid)
        await until(lambda: caller.replica == "b")
        for name in "ab":
            await cluster.replicas[name].send("update", {"id": "u1"})
            await cluster.replicas[name].send("ephemeral", {"type": "e1"})
        await cluster.replicas["a"].send("update", {"id": "u2"})
        await until(lambda: "u2" in got and "e1" in got)
        gate_call.cancel()
    assert sorted(got) == ["e1", "u1", "u2"]
