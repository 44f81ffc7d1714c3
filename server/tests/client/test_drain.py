from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.client import Caller, Daemon, RpcError

from .replicas import Cluster, Front, until
from .test_call import Gate


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moorage.client.keeper.HANDOVER_PAUSES_S", (0.01, 0.02, 0.03))
    monkeypatch.setattr("moorage.client.keeper.LINGER_S", 0.1)
    monkeypatch.setattr("moorage.client.keeper.DEADLINE_SLACK_S", 0.1)


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
        cluster.register_delay = 0.3  # longer than an idle connection lingers
        old = daemon.sid
        await cluster.replicas["a"].sio.emit("server-draining", {"deadlineMs": 4e12}, to=old)
        while daemon.replica != "b":
            homes.append(cluster.home("gate"))
            await asyncio.sleep(0.005)
        assert cluster.home("gate") == "b"
        # At no moment was nobody registered, and the old connection still carries the call.
        assert set(homes) <= {"a", "b"}
        await asyncio.sleep(0.3)
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
        await asyncio.sleep(0.3)  # longer than an idle connection lingers; what carries a call must not
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
    await front.cut_off(daemon)
    await until(lambda: not cluster.replicas["a"].sids)
    await daemon.registered()
    async with Caller(front.url, "good") as caller:
        assert await caller.call("gate", 1) == 1
    await until(lambda: len(cluster.replicas["b"].sids) <= 1)


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
        await cluster.replicas["b"].send("update", {"id": "u3"})
        await until(lambda: "u2" in got and "u3" in got)
        gate_call.cancel()
    assert sorted(got) == ["e1", "u1", "u2", "u3"]


@pytest.mark.parametrize("when", ["die after registering", "die before the old one is told"])
async def test_a_new_connection_that_dies_leaves_the_old_one_registered(
    cluster: Cluster, front: Front, daemon: Daemon, gate: Gate, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr("moorage.client.keeper.PREPARE_S", 60)  # its death must be noticed, not waited out
    superseded: list[str] = []
    daemon.on_superseded(superseded.append)
    gate.open.set()
    replica = cluster.replicas["b"]
    replica.scripted = when
    front.default = "b"
    await cluster.replicas["a"].drain()
    # Each of the three tries took the method over and died.
    await until(lambda: len([name for name, _, _ in cluster.gone if name == "b"]) == 3)
    front.default = "a"
    async with Caller(front.url, "good") as caller:
        await until(lambda: cluster.home("gate") == "a")
        assert await caller.call("gate", 1) == 1
    await daemon.registered()
    assert daemon.scopes == {"gate": "cluster"}
    assert superseded == []


async def test_a_method_refused_elsewhere_does_not_keep_us(
    cluster: Cluster, front: Front, daemon: Daemon
) -> None:
    cluster.refused_methods["gate"] = "Too many methods"
    front.default = "b"
    await cluster.replicas["a"].drain()
    await until(lambda: daemon.replica == "b")


@pytest.mark.parametrize("seed", range(3))
async def test_every_call_ends_once_whatever_happens(
    cluster: Cluster, front: Front, gate: Gate, seed: int
) -> None:
    chance = random.Random(seed)
    gate.open.set()
    daemon = Daemon(front.url, "good")
    daemon.add_method("gate", gate)
    async with daemon, Caller(front.url, "good", connect_wait=0.5) as caller:
        calls: list[asyncio.Task[Any]] = []
        for number in range(60):
            calls.append(asyncio.create_task(caller.call("gate", number, timeout=5)))
            match chance.randrange(12):
                case 0:
                    front.cut()
                case 1 | 2:
                    front.default = chance.choice("ab")
                    await cluster.replicas["a" if front.default == "b" else "b"].drain()
                case 3:
                    front.next = [chance.choice("ab") for _ in range(3)]
            await asyncio.sleep(chance.choice([0, 0, 0.01, 0.03]))
        ends = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20)
        for number, end in enumerate(ends):
            assert end == number or isinstance(end, RpcError), end
        await daemon.registered()
        await caller.connected()
        assert await caller.call("gate", "afterwards") == "afterwards"
        # What was handed over is let go: one connection each is left.
        await until(lambda: sum(len(replica.sids) for replica in cluster.replicas.values()) == 2)
    # No call ran twice, and each that gave its result has run.
    assert len(gate.ended) == len({repr(params) for params in gate.ended})
