from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from moorage.client import Caller, Daemon, RegistrationError, Unreachable

from .replicas import Cluster, Front, until
from .test_call import Gate


def requests(cluster: Cluster, method: str) -> list[Any]:
    return [payload for payload in cluster.payloads("rpc-register") if payload["method"] == method]


async def test_methods_are_registered_on_every_connection(cluster: Cluster, front: Front) -> None:
    daemon = Daemon(front.url, "good", machine_id="m1")
    daemon.add_method("one", lambda params: params)
    daemon.add_method("two", lambda params: params, resumable=True)
    async with daemon:
        assert daemon.scopes == {"one": "cluster", "two": "cluster"}
        front.default = "b"
        front.cut()
        await until(lambda: daemon.replica == "b")
        await daemon.registered()
        assert (cluster.home("one"), cluster.home("two")) == ("b", "b")
        daemon.add_method("three", lambda params: params)
        await daemon.registered()
        assert cluster.home("three") == "b"
    assert requests(cluster, "one") == [{"method": "one", "resumable": False}] * 2
    assert requests(cluster, "two") == [{"method": "two", "resumable": True}] * 2


async def test_registered_waits_for_all_replicas_to_know(cluster: Cluster, front: Front) -> None:
    cluster.scope = "local"
    daemon = Daemon(front.url, "good")
    daemon.add_method("m", lambda params: params)
    async with daemon:
        assert daemon.scopes == {"m": "local"}
        with pytest.raises(Unreachable, match="not registered"):
            await daemon.registered(timeout=0.05, cluster=True)
        await cluster.replicas["a"].send("rpc-registered", {"method": "m", "scope": "cluster"})
        await daemon.registered(cluster=True)


async def test_a_refused_method_is_said(cluster: Cluster, front: Front) -> None:
    cluster.refused_methods["bad"] = "Too many methods"
    daemon = Daemon(front.url, "good")
    daemon.add_method("good", lambda params: params)
    daemon.add_method("bad", lambda params: params)
    await daemon.start()
    with pytest.raises(RegistrationError, match="bad: Too many methods"):
        await daemon.registered()
    daemon.remove_method("bad")
    await daemon.registered()
    await daemon.stop()


@pytest.mark.parametrize("name", ["", "x" * 257, None, 5])
def test_a_bad_name_is_not_sent(name: Any) -> None:
    with pytest.raises(ValueError, match="1 to 256"):
        Daemon("http://127.0.0.1:1", "good").add_method(name, print)


async def test_a_removed_method_is_unregistered(cluster: Cluster, front: Front) -> None:
    daemon = Daemon(front.url, "good")
    daemon.add_method("m", lambda params: params)
    daemon.add_method("n", lambda params: params)
    async with daemon:
        daemon.remove_method("m")
        daemon.remove_method("never")
        await until(lambda: cluster.home("m") is None)
        assert cluster.payloads("rpc-unregister") == [{"method": "m"}]
        front.cut()
        await until(lambda: len(cluster.auths) == 2)
        await daemon.registered()
    assert len(requests(cluster, "m")) == 1


async def test_a_sync_handler_does_not_stop_the_loop(front: Front) -> None:
    daemon = Daemon(front.url, "good")
    release = threading.Event()

    @daemon.method("blocks")
    def blocks(params: Any) -> Any:
        return release.wait(10), threading.current_thread() is threading.main_thread()

    @daemon.method("async-inside")
    def async_inside(params: Any) -> Any:
        return asyncio.sleep(0, params)

    async with daemon, Caller(front.url, "good") as caller:
        blocked = asyncio.create_task(caller.call("blocks"))
        assert await caller.call("async-inside", 1) == 1
        release.set()
        assert await blocked == [True, False]


async def test_concurrency_is_bounded_in_order(front: Front) -> None:
    gate = Gate()
    daemon = Daemon(front.url, "good", concurrency=2)
    daemon.add_method("gate", gate)
    async with daemon, Caller(front.url, "good") as caller:
        calls = [asyncio.create_task(caller.call("gate", number)) for number in range(5)]
        # Five requests may come at once; a handler starts a turn of the loop after its request.
        await until(lambda: len(daemon._runs) == 5 and len(gate.started) >= 2)
        assert gate.started == [0, 1]
        gate.open.set()
        assert await asyncio.gather(*calls) == [0, 1, 2, 3, 4]
    assert gate.started == [0, 1, 2, 3, 4]


async def test_a_waiting_request_can_be_cancelled_before_it_runs(cluster: Cluster, front: Front) -> None:
    gate = Gate()
    daemon = Daemon(front.url, "good", concurrency=1)
    daemon.add_method("gate", gate)
    async with daemon, Caller(front.url, "good") as caller:
        first = asyncio.create_task(caller.call("gate", 1))
        second = asyncio.create_task(caller.call("gate", 2))
        await until(lambda: len(daemon._runs) == 2)
        second.cancel()
        await until(lambda: len(daemon._runs) == 1)
        gate.open.set()
        assert await first == 1
    assert gate.started == [1]


async def again(cluster: Cluster, request_id: str, method: str) -> Any:
    """The server sends a request to whoever serves the method now; the ack."""
    call = cluster.replicas["a"].request(
        cluster.registry[method], {"method": method, "params": "again", "requestId": request_id}
    )
    return (await asyncio.wait_for(call.ended, 10))["result"]


async def test_a_resumable_request_runs_once_over_a_reconnect(cluster: Cluster, front: Front) -> None:
    gate = Gate()
    daemon = Daemon(front.url, "good")
    daemon.add_method("gate", gate, resumable=True)
    async with daemon:
        lost = asyncio.create_task(again(cluster, "r1", "gate"))
        await until(lambda: gate.started)
        front.cut()
        await until(lambda: len(cluster.auths) == 2)
        await daemon.registered()
        joined = asyncio.create_task(again(cluster, "r1", "gate"))
        await daemon.request("message", {})
        gate.open.set()
        assert await joined == "again"
        assert await again(cluster, "r1", "gate") == "again"
        assert await again(cluster, "r2", "gate") == "again"
        lost.cancel()
    assert gate.started == ["again", "again"]  # r1 and r2


async def test_a_result_made_while_away_is_given_on_return(cluster: Cluster, front: Front) -> None:
    gate = Gate()
    daemon = Daemon(front.url, "good")
    daemon.add_method("gate", gate, resumable=True)
    async with daemon:
        first = asyncio.create_task(again(cluster, "r1", "gate"))
        await until(lambda: gate.started)
        front.default = None
        front.cut()
        await until(lambda: daemon.state != "connected")
        gate.open.set()
        await until(lambda: gate.ended)
        front.default = "a"
        await daemon.registered()
        assert await again(cluster, "r1", "gate") == "again"
        first.cancel()
    assert len(gate.started) == 1


async def test_results_of_other_methods_are_not_kept(cluster: Cluster, front: Front) -> None:
    gate = Gate()
    gate.open.set()
    daemon = Daemon(front.url, "good")
    daemon.add_method("gate", gate)
    async with daemon:
        await again(cluster, "r1", "gate")
        await again(cluster, "r1", "gate")
        assert len(daemon._results) == 0
    assert len(gate.started) == 2


async def test_a_cancelled_resumable_request_leaves_no_result(cluster: Cluster, front: Front) -> None:
    gate = Gate()
    daemon = Daemon(front.url, "good")
    daemon.add_method("gate", gate, resumable=True)
    async with daemon, Caller(front.url, "good") as caller:
        task = asyncio.create_task(caller.call("gate", 1, request_id="r1"))
        await until(lambda: gate.started)
        task.cancel()
        await until(lambda: gate.cancelled)
        gate.open.set()
        assert await again(cluster, "r1", "gate") == "again"


async def test_a_request_that_is_cancelled_before_its_first_step_leaves_nothing(
    cluster: Cluster, front: Front
) -> None:
    """Both may come in one read."""
    gate = Gate()
    gate.open.set()
    daemon = Daemon(front.url, "good")
    daemon.add_method("gate", gate)
    async with daemon:
        socket = daemon._socket
        assert socket is not None
        request = {"method": "gate", "params": 1, "requestId": "r1"}
        socket._owed.add(7)
        daemon._received(socket, "rpc-request", request, 7)
        daemon._received(socket, "rpc-cancel", {"requestId": "r1"}, None)
        await until(lambda: not daemon._runs)
        assert gate.started == [] and not socket.in_flight
        async with Caller(front.url, "good") as caller:
            assert await caller.call("gate", 1, request_id="r1") == 1


async def test_a_handler_that_ends_itself_as_cancelled_is_answered(cluster: Cluster, front: Front) -> None:
    daemon = Daemon(front.url, "good")

    @daemon.method("m")
    async def cancels_itself(params: Any) -> None:
        raise asyncio.CancelledError

    async with daemon, Caller(front.url, "good") as caller:
        assert await caller.call("m") == {"error": "CancelledError: "}


async def test_a_newer_daemon_takes_the_method_over(cluster: Cluster, front: Front) -> None:
    told: list[str] = []
    older = Daemon(front.url, "good", machine_id="m1")
    older.on_superseded(told.append)
    older.add_method("m", lambda params: "older")
    older.add_method("mine", lambda params: "mine")
    newer = Daemon(front.url, "good", machine_id="m1")
    newer.add_method("m", lambda params: "newer")
    async with older, newer, Caller(front.url, "good") as caller:
        await until(lambda: told == ["m"])
        assert older.scopes == {"mine": "cluster"}
        front.cut()
        await until(lambda: len(cluster.auths) == 6)
        await asyncio.gather(older.registered(), newer.registered())
        assert await caller.call("m") == "newer"
        assert len(requests(cluster, "m")) == 3  # the older one did not claim it again
        older.add_method("m", lambda params: "older again")
        await older.registered()
        assert await caller.call("m") == "older again"


async def test_junk_requests_are_answered_or_ignored(cluster: Cluster, front: Front) -> None:
    daemon = Daemon(front.url, "good")
    daemon.add_method("m", lambda params: params)
    async with daemon:
        sio, to = cluster.replicas["a"].sio, daemon.sid
        for junk in (
            None,
            5,
            "x",
            [],
            {},
            {"method": "m"},
            {"method": [], "requestId": {}},
            {"requestId": "r"},
        ):
            answer = await sio.call("rpc-request", junk, to=to, timeout=5)
            assert answer == {"error": "LookupError: no such method here"}
            await sio.emit("rpc-request", junk, to=to)
            for event in ("rpc-cancel", "rpc-superseded", "rpc-registered", "server-draining", "update"):
                await sio.emit(event, junk, to=to)
        answer = await sio.call(
            "rpc-request", {"method": "m", "params": 1, "requestId": "r"}, to=to, timeout=5
        )
        assert answer == 1


async def test_a_stop_gives_up_its_methods_and_lets_handlers_end(cluster: Cluster, front: Front) -> None:
    gate = Gate()
    daemon = Daemon(front.url, "good")
    daemon.add_method("gate", gate)
    async with daemon, Caller(front.url, "good") as caller:
        call = asyncio.create_task(caller.call("gate", 1))
        await until(lambda: gate.started)
        stop = asyncio.create_task(daemon.stop(grace=10))
        await until(lambda: cluster.home("gate") is None)
        gate.open.set()
        assert await call == 1
        await stop


async def test_a_stop_without_grace_cancels_handlers(cluster: Cluster, front: Front) -> None:
    gate = Gate()
    daemon = Daemon(front.url, "good")
    daemon.add_method("gate", gate)
    async with daemon:
        running = asyncio.create_task(again(cluster, "r", "gate"))
        await until(lambda: gate.started)
        await daemon.stop(grace=0)
        running.cancel()
    assert gate.cancelled == ["again"]
