from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.client import Caller, ConnectionLost, Daemon, RpcError
from moorage.client.errors import result_of

from .replicas import Cluster, Front, until


class Gate:
    """A handler that waits until it is let go, and counts."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.started: list[Any] = []
        self.ended: list[Any] = []
        self.cancelled: list[Any] = []

    async def __call__(self, params: Any) -> Any:
        self.started.append(params)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(params)
            raise
        self.ended.append(params)
        return params


@pytest.fixture
async def gate() -> Gate:
    return Gate()


@pytest.fixture
async def daemon(front: Front, gate: Gate) -> AsyncIterator[Daemon]:
    daemon = Daemon(front.url, "good", machine_id="m1")

    @daemon.method("echo")
    async def echo(params: Any) -> Any:
        return params

    @daemon.method("raise")
    async def fail(params: Any) -> None:
        raise KeyError(params)

    @daemon.method("unsayable")
    async def unsayable(params: Any) -> Any:
        return {1, 2}

    daemon.add_method("gate", gate)
    async with daemon:
        yield daemon
        await daemon.stop(grace=0)


@pytest.fixture
async def caller(front: Front, daemon: Daemon) -> AsyncIterator[Caller]:
    front.default = "b"
    async with Caller(front.url, "good", connect_wait=0.2) as caller:
        yield caller


async def test_a_call_reaches_the_daemon_on_another_replica(
    cluster: Cluster, daemon: Daemon, caller: Caller
) -> None:
    assert (daemon.replica, caller.replica) == ("a", "b")
    assert await caller.call("echo", {"a": [1, "ü", None]}) == {"a": [1, "ü", None]}
    assert cluster.auths == [
        {"token": "good", "clientType": "machine-scoped", "machineId": "m1"},
        {"token": "good", "clientType": "user-scoped", "pid": None, "offset": None},
    ]


async def test_a_result_of_none_is_sent_as_null(caller: Caller) -> None:
    # python-socketio's own client sends no argument at all for None.
    assert await caller.call("echo", None) is None


async def test_an_exception_in_the_handler_becomes_an_error_object(caller: Caller) -> None:
    assert await caller.call("raise", "x") == {"error": "KeyError: 'x'"}


async def test_a_result_that_json_cannot_say_becomes_an_error_object(caller: Caller) -> None:
    assert await caller.call("unsayable") == {
        "error": "TypeError: Object of type set is not JSON serializable"
    }


async def test_a_typed_end_is_raised(caller: Caller) -> None:
    with pytest.raises(RpcError) as end:
        await caller.call("nobody")
    assert (end.value.code, end.value.error, end.value.delivered) == (
        "not_available",
        "RPC method not available",
        "no",
    )


async def test_what_is_sent_is_what_the_protocol_says(cluster: Cluster, caller: Caller) -> None:
    await caller.call("echo", 1)
    await caller.call("echo", 2, timeout=2.5, request_id="r2", on_target_lost="wait")
    first, second = cluster.payloads("rpc-call")
    assert set(first) == {"method", "params", "requestId"}
    assert 1500 < second.pop("timeoutMs") <= 2500
    assert second == {"method": "echo", "params": 2, "requestId": "r2", "onTargetLost": "wait"}


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
async def test_a_timeout_must_be_positive(caller: Caller, timeout: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        await caller.call("echo", timeout=timeout)


async def test_params_that_json_cannot_say_are_the_callers_error(cluster: Cluster, caller: Caller) -> None:
    with pytest.raises(TypeError):
        await caller.call("echo", object())
    assert await caller.call("echo", 1) == 1


async def test_cancelling_the_task_cancels_the_call_and_the_handler(
    cluster: Cluster, caller: Caller, gate: Gate
) -> None:
    task = asyncio.create_task(caller.call("gate", 7, request_id="r7"))
    await until(lambda: gate.started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: gate.cancelled)
    assert cluster.payloads("rpc-cancel") == [{"requestId": "r7"}]
    assert gate.ended == []


async def test_a_connection_lost_in_mid_call_ends_it_as_unknown(
    front: Front, caller: Caller, gate: Gate
) -> None:
    task = asyncio.create_task(caller.call("gate", 1))
    await until(lambda: gate.started)
    front.cut()
    with pytest.raises(ConnectionLost) as end:
        await task
    assert (end.value.code, end.value.delivered) == ("connection_lost", "unknown")


async def test_without_a_connection_nothing_is_sent(cluster: Cluster, front: Front, caller: Caller) -> None:
    front.default = None
    front.cut()
    await until(lambda: caller.state != "connected")
    with pytest.raises(ConnectionLost) as end:
        await caller.call("echo", 1)
    assert end.value.delivered == "no"
    assert cluster.payloads("rpc-call") == []


async def test_a_call_waits_for_the_connection_to_come_back(front: Front, daemon: Daemon) -> None:
    async with Caller(front.url, "good") as caller:
        await front.cut_off(caller, daemon)
        await daemon.registered()
        assert await caller.call("echo", 1) == 1


async def test_waiting_joins_the_running_call_after_a_reconnect(
    cluster: Cluster, front: Front, gate: Gate
) -> None:
    steady = Front(cluster.replicas)
    steady.default = "a"
    async with steady.serving():
        daemon = Daemon(steady.url, "good")
        daemon.add_method("slow", gate, resumable=True)
        async with daemon, Caller(front.url, "good") as caller:
            task = asyncio.create_task(
                caller.call("slow", 5, timeout=20, request_id="r5", on_target_lost="wait")
            )
            await until(lambda: gate.started)
            front.cut()
            await until(lambda: len(cluster.payloads("rpc-call")) == 2)
            gate.open.set()
            assert await task == 5
    assert gate.started == [5]
    first, second = cluster.payloads("rpc-call")
    assert second["requestId"] == first["requestId"] == "r5"
    assert second["timeoutMs"] <= first["timeoutMs"]


async def test_a_server_that_never_answers_does_not_hang_the_call(
    cluster: Cluster, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.client.caller.SLACK_S", 0.05)
    cluster.mute = True
    with pytest.raises(RpcError) as end:
        await caller.call("echo", timeout=0.05, request_id="r1")
    assert (end.value.code, end.value.delivered) == ("timeout", "unknown")
    await until(lambda: cluster.payloads("rpc-cancel") == [{"requestId": "r1"}])


async def test_a_stop_lets_calls_in_flight_end(front: Front, daemon: Daemon, gate: Gate) -> None:
    caller = Caller(front.url, "good")
    async with caller:
        task = asyncio.create_task(caller.call("gate", 3))
        await until(lambda: gate.started)
        stop = asyncio.create_task(caller.stop(grace=10))
        asyncio.get_running_loop().call_later(0.05, gate.open.set)
        await stop
        assert await task == 3


async def test_a_stop_without_grace_ends_them(front: Front, daemon: Daemon, gate: Gate) -> None:
    async with Caller(front.url, "good") as caller:
        task = asyncio.create_task(caller.call("gate", 3))
        await until(lambda: gate.started)
        await caller.stop(grace=0)
        with pytest.raises(ConnectionLost):
            await task


@pytest.mark.parametrize(
    ("ack", "code", "delivered"),
    [
        ({"ok": False, "code": "overloaded", "error": "Too many", "delivered": "no"}, "overloaded", "no"),
        ({"ok": False, "code": "timeout", "error": "t"}, "timeout", "unknown"),
        ({"ok": False, "code": "new_code", "error": "t", "delivered": "yes"}, "internal_error", "yes"),
        ({"ok": False, "code": 5, "error": [], "delivered": "maybe"}, "internal_error", "unknown"),
        ({"ok": 1}, "internal_error", "unknown"),
        ("junk", "internal_error", "unknown"),
        (None, "internal_error", "unknown"),
    ],
)
def test_every_ack_that_is_no_result_is_a_typed_end(ack: Any, code: str, delivered: str) -> None:
    with pytest.raises(RpcError) as end:
        result_of(ack)
    assert (end.value.code, end.value.delivered) == (code, delivered)


async def test_an_event_handler_that_raises_disturbs_nothing(
    cluster: Cluster, caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[Any] = []

    @caller.on("rpc-waiting")
    def broken(payload: Any) -> None:
        raise RuntimeError("mine")

    @caller.on("rpc-waiting")
    async def broken_later(payload: Any) -> None:
        raise RuntimeError("mine too")

    caller.on("rpc-waiting", got.append)
    await cluster.replicas["b"].send("rpc-waiting", {"requestId": "r"})
    await until(lambda: got and "mine too" in caplog.text)
    assert got == [{"requestId": "r"}]
    assert await caller.call("echo", 1) == 1
