"""Calls between replicas over a real Redis: order of events, evidence, faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from ..valkey import Valkey
from .replicas import Replica, until

BEAT_MISSES = 15


@pytest.fixture
async def trio(valkey: Valkey) -> AsyncIterator[list[Replica]]:
    async with AsyncExitStack() as stack:
        replicas = [
            # All in one loop: if it stands still, they do not give each other up for it.
            Replica(name, valkey.url, rpc_reconnect_grace_ms=10_000, beat_misses=BEAT_MISSES)
            for name in ("a", "b", "c")
        ]
        for replica in replicas:
            await stack.enter_async_context(replica)
        yield replicas


async def knows(replica: Replica, method: str, sid: str | None) -> None:
    def check() -> bool:
        entry = replica.registry.resolve(f"rpc:acc:{method}")
        return (entry.sid if entry else None) == sid

    await until(check)


async def test_call_across_replicas(trio: list[Replica]) -> None:
    a, b, _ = trio
    b.daemon("d", "m", lambda params: {"got": params})
    await knows(a, "m", "d")
    params = {"x": [1, 2.5, None, "ü"], "bin": b"\x00\xff"}
    assert await a.call("m", params) == {"ok": True, "result": {"got": params}}


async def test_same_replica_needs_no_redis(trio: list[Replica], valkey: Valkey) -> None:
    a = trio[0]
    a.daemon("d", "m", lambda params: params)
    valkey.freeze()
    try:
        assert await a.call("m", 1) == {"ok": True, "result": 1}
    finally:
        valkey.thaw()


async def test_told_means_callable_from_everywhere(trio: list[Replica]) -> None:
    a, b, c = trio
    for number in range(50):
        socket = b.daemon(f"d{number}", f"m{number}", lambda params: params)
        assert socket is not None
        assert await asyncio.wait_for(b.membership.told(b.membership.last_tell), 5)
        for other in (a, c):
            entry = other.registry.resolve(f"rpc:acc:m{number}")
            assert entry is not None and entry.sid == f"d{number}"


async def test_newest_wins_and_the_older_is_superseded(trio: list[Replica]) -> None:
    a, b, c = trio
    superseded: list[str] = []
    for replica in trio:
        replica.registry.on_superseded = lambda entry, r=replica: (  # type: ignore[misc]
            superseded.append(entry.sid),
            r.registry.leave(entry.room, entry.sid),
        )
    old = b.daemon("old", "m")
    await knows(c, "m", "old")
    running = a.start("m", 1) if a.registry.resolve("rpc:acc:m") else None
    if running is None:
        await knows(a, "m", "old")
        running = a.start("m", 1)
    await until(lambda: bool(old.ran))
    c.daemon("new", "m", lambda params: "new")
    for replica in trio:
        await knows(replica, "m", "new")
    assert superseded == ["old"]
    assert (await a.call("m"))["result"] == "new"
    b.ack("old", old.ran[0], "still answered")
    assert (await running)["result"] == "still answered"


async def test_waits_for_a_daemon_that_comes(trio: list[Replica]) -> None:
    a, b, _ = trio
    waiting = a.start("m", 7)
    assert a.sockets["caller"].received("rpc-waiting")[0]["method"] == "m"
    b.daemon("d", "m", lambda params: params)
    assert (await asyncio.wait_for(waiting, 10))["result"] == 7


async def test_dead_replica_ends_its_calls_by_evidence(trio: list[Replica]) -> None:
    a, b, c = trio
    socket = b.daemon("d", "m")
    await knows(a, "m", "d")
    c.daemon("other", "n")
    await knows(a, "n", "other")
    call, bystander = a.start("m"), a.start("n")
    await until(lambda: bool(socket.ran))
    kinds: list[str] = []
    a.remote.on_evidence = kinds.append
    await b.die()
    ack = await asyncio.wait_for(call, 10)
    assert (ack["code"], ack["delivered"]) == ("target_disconnected", "unknown")
    assert kinds == ["no_receiver"]
    assert "b" not in a.membership.members
    assert not bystander.done()


async def test_request_that_reached_nobody_waits_for_the_next_daemon(
    trio: list[Replica], valkey: Valkey
) -> None:
    a, b, c = trio
    b.daemon("d", "m")
    await knows(a, "m", "d")
    await b.die()
    # Until Redis has seen it, too: what comes in the same turn is still counted as received.
    await until(lambda: not any(name.startswith("b:") for name in valkey.client_names()))
    waiting = a.start("m", 3)  # a does not know yet
    c.daemon("d2", "m", lambda params: params)
    assert (await asyncio.wait_for(waiting, 10))["result"] == 3


async def test_goodbye_ends_at_once(trio: list[Replica]) -> None:
    a, b, _ = trio
    socket = b.daemon("d", "m")
    await knows(a, "m", "d")
    call = a.start("m")
    await until(lambda: bool(socket.ran))
    await b.membership.stop()
    assert (await asyncio.wait_for(call, 5))["code"] == "target_disconnected"


async def test_socket_that_closes_ends_its_calls(trio: list[Replica]) -> None:
    a, b, _ = trio
    socket = b.daemon("d", "m")
    await knows(a, "m", "d")
    first, second = a.start("m", 1), a.start("m", 2)
    await until(lambda: len(socket.ran) == 2)
    third = a.start("m", 3)
    await until(lambda: len(socket.ran) == 3)
    b.ack("d", socket.ran[1], "answered")
    assert (await second)["result"] == "answered"
    b.hang_up("d")
    ended = [await asyncio.wait_for(call, 5) for call in (first, third)]
    assert [(e["code"], e["delivered"]) for e in ended] == [
        ("target_disconnected", "yes"),  # a later request was answered on the same connection
        ("target_disconnected", "unknown"),
    ]


async def test_cancel_and_deadline_tell_the_target(trio: list[Replica]) -> None:
    a, b, _ = trio
    socket = b.daemon("d", "m")
    await knows(a, "m", "d")
    one, two = a.start("m", requestId="r1"), a.start("m", requestId="r2", timeoutMs=1000)
    await until(lambda: len(socket.ran) == 2)
    assert a.calls.cancel("acc", "r1")
    assert (await one)["code"] == "cancelled"
    assert (await asyncio.wait_for(two, 10))["code"] == "timeout"
    await until(lambda: len(socket.received("rpc-cancel")) == 2)
    assert {c["requestId"] for c in socket.received("rpc-cancel")} == {"r1", "r2"}


async def test_resumable_target_gets_the_same_request_again(trio: list[Replica]) -> None:
    a, b, c = trio
    first = b.daemon("d", "m", resumable=True)
    await knows(a, "m", "d")
    call = a.start("m", 5, requestId="same", onTargetLost="wait")
    await until(lambda: first.ran == ["same"])
    b.hang_up("d")
    second = c.daemon("d2", "m", lambda params: params, resumable=True)
    assert (await asyncio.wait_for(call, 5))["result"] == 5
    assert second.ran == ["same"]


async def test_redis_restart_loses_no_call_and_runs_none_twice(trio: list[Replica], valkey: Valkey) -> None:
    a, b, _ = trio
    slow = b.daemon("d", "slow")
    await knows(a, "slow", "d")
    running = [a.start("slow", i) for i in range(20)]
    await until(lambda: len(slow.ran) == 20)
    valkey.kill()
    for request_id in slow.ran[:10]:
        b.ack("d", request_id, "answered while redis is away")
    await until(lambda: not a.backplane.available)
    assert (await a.call("slow"))["code"] == "backplane_unavailable"
    valkey.start()
    for request_id in slow.ran[10:]:
        b.ack("d", request_id, "answered later")
    answers = await asyncio.wait_for(asyncio.gather(*running), 15)
    assert all(answer["ok"] for answer in answers), answers
    assert len(slow.ran) == len(set(slow.ran)) == 20
    await until(lambda: a.backplane.available and b.backplane.available)
    await knows(a, "slow", "d")


async def test_nobody_is_given_up_while_redis_is_away(trio: list[Replica], valkey: Valkey) -> None:
    a, b, _ = trio
    gone: list[str] = []
    for replica in trio:
        on_gone = replica.membership.on_gone
        replica.membership.on_gone = lambda member, kind, f=on_gone: (gone.append(kind), f(member, kind))[0]  # type: ignore[misc]
    valkey.kill()
    await until(lambda: not any(r.backplane.available for r in trio))
    beats_s = a.settings.beat_interval_ms * BEAT_MISSES / 1000
    await asyncio.sleep(beats_s + 0.3)  # more than the missed beats that would be evidence
    assert gone == []
    valkey.start()
    await until(lambda: all(r.backplane.available for r in trio))
    b.daemon("d", "m", lambda params: params)
    await knows(a, "m", "d")
    assert gone == []


async def test_killed_subscriptions_prove_nothing(trio: list[Replica], valkey: Valkey) -> None:
    a, b, _ = trio
    b.daemon("d", "m", lambda params: params)
    await knows(a, "m", "d")
    gone: list[str] = []
    a.remote.on_evidence = gone.append
    for number in range(30):
        if number % 5 == 0:
            valkey.kill_clients("pubsub")
        ack = await a.call("m", number)
        assert ack == {"ok": True, "result": number}
    assert gone == []


async def test_a_cut_subscription_of_one_replica_proves_nothing(trio: list[Replica], valkey: Valkey) -> None:
    a, b, _ = trio
    b.daemon("d", "m", lambda params: params)
    await knows(a, "m", "d")
    await until(lambda: a.membership.members["b"].seen_generation == a.backplane.generation)
    gone: list[str] = []
    a.remote.on_evidence = gone.append
    for number in range(30):
        call = a.start("m", number)
        (mine,) = [c for c in valkey.client.client_list() if c["name"] == "b:subscriber"]
        valkey.client.client_kill_filter(_id=mine["id"])
        assert await asyncio.wait_for(call, 10) == {"ok": True, "result": number}
        await until(lambda: "b:subscriber" in valkey.client_names())
    assert gone == []


async def test_frozen_replica_is_given_up_and_its_return_is_clean(valkey: Valkey) -> None:
    """A replica that hears nothing and says nothing, while ours beats on."""
    async with Replica("a", valkey.url) as a, Replica("b", valkey.url) as b:
        socket = b.daemon("d", "m")
        await knows(a, "m", "d")
        call = a.start("m")
        await until(lambda: bool(socket.ran))
        assert b.membership._timer is not None
        b.membership._timer.cancel()  # no beat any more
        b.backplane.unsubscribe("moorage:members", b.membership._on_channel)
        ack = await asyncio.wait_for(call, 25)  # where the loop stands still, the silence counts anew
        assert ack["code"] == "target_disconnected"
        assert "b" not in a.membership.members
        b.membership.backplane.subscribe("moorage:members", b.membership._on_channel)
        b.membership._tick()  # it stalled: a new generation
        await until(lambda: "b" in a.membership.members)
        await knows(a, "m", "d")
        assert socket.received("rpc-cancel") == [{"requestId": socket.ran[0]}]


async def test_registry_is_whole_after_a_lost_link(trio: list[Replica], valkey: Valkey) -> None:
    a, b, c = trio
    b.daemon("d0", "m0")
    await knows(a, "m0", "d0")
    valkey.kill()
    for number in range(1, 20):
        b.daemon(f"d{number}", f"m{number}", lambda params: params)
    b.registry.leave("rpc:acc:m0", "d0")
    valkey.start()
    for replica in (a, c):
        for number in range(1, 20):
            await knows(replica, f"m{number}", f"d{number}")
        await knows(replica, "m0", None)


async def test_junk_in_inbox_and_channel_is_dropped(trio: list[Replica], valkey: Valkey) -> None:
    a, b, _ = trio
    b.daemon("d", "m", lambda params: params)
    await knows(a, "m", "d")
    import ormsgpack

    junk = [b"", b"\xc1", b"\x93", ormsgpack.packb(1), ormsgpack.packb([]), ormsgpack.packb(["a", 1, 2])]
    junk += [
        ormsgpack.packb(["a", a.membership.boot, kind]) for kind in ("msg", "state", "applied", "answer")
    ]
    junk += [ormsgpack.packb(["a", a.membership.boot, "msg", m]) for m in (1, b"", ormsgpack.packb(["q", 1]))]
    junk += [
        ormsgpack.packb(["a", a.membership.boot, "tell", 10**6, [["+"]]]),
        ormsgpack.packb(["x", "y", "beat"]),
    ]
    for payload in junk:
        valkey.client.publish(b.membership.inbox, payload)
        valkey.client.publish("moorage:members", payload)
    assert (await a.call("m", "fine"))["result"] == "fine"


async def test_ask_says_when_somebody_did_not_answer(trio: list[Replica]) -> None:
    a, b, c = trio
    b.membership.answer = lambda kind, payload: [kind, payload, "b"]
    c.membership.answer = lambda kind, payload: [kind, payload, "c"]
    answers, complete = await a.membership.ask("who", 1, 5)
    assert complete and sorted(answers) == [["who", 1, "b"], ["who", 1, "c"]]
    c.membership.on_tell = lambda replica, items: None
    c.membership._from_channel = lambda *args: None  # type: ignore[method-assign]
    answers, complete = await a.membership.ask("who", 2, 1)
    assert not complete and answers == [["who", 2, "b"]]
