"""Two whole replicas and real clients: what PROTOCOL promises, end to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from ..valkey import Valkey
from .running import Client, Running, running, until

Pair = tuple[Running, Running]


@pytest.fixture
async def pair(valkey: Valkey) -> AsyncIterator[Pair]:
    async with running(valkey.url, "a", drain_ms=1500) as a, running(valkey.url, "b", drain_ms=1500) as b:
        yield a, b


async def test_register_and_call_across_replicas(pair: Pair) -> None:
    a, b = pair
    async with Client(a, clientType="machine-scoped", machineId="m") as daemon, Client(b) as caller:
        assert await daemon.register("m:echo") == {"method": "m:echo", "scope": "cluster"}
        ack = await caller.ack("rpc-call", {"method": "m:echo", "params": {"x": b"\x00\x01", "y": [1, None]}})
        assert ack == {"ok": True, "result": {"echo": {"x": b"\x00\x01", "y": [1, None]}, "by": daemon.sid}}
        room = "rpc:acc:m:echo"
        assert b.replica.registry.resolve(room) is not None
        await daemon.sio.emit("rpc-unregister", {"method": "m:echo"})
        await until(lambda: daemon.of("rpc-unregistered") == [{"method": "m:echo"}])
        await until(lambda: b.replica.registry.resolve(room) is None)
        ack = await caller.ack("rpc-call", {"method": "m:echo", "timeoutMs": 50})
        assert ack["code"] == "not_available"


async def test_one_process_without_redis_behaves_the_same() -> None:
    async with (
        running(None) as alone,
        Client(alone, clientType="machine-scoped", machineId="m") as daemon,
        Client(alone) as caller,
    ):
        assert await daemon.register("m:echo") == {"method": "m:echo", "scope": "cluster"}
        assert (await caller.ack("rpc-call", {"method": "m:echo", "params": 1}))["result"]["echo"] == 1


async def test_other_accounts_methods_do_not_exist(pair: Pair) -> None:
    a, b = pair
    async with Client(a, "alice") as daemon, Client(b, "mallory") as caller:
        await daemon.register("secret")
        ack = await caller.ack("rpc-call", {"method": "secret", "timeoutMs": 100})
        assert ack["code"] == "not_available"
        ack = await caller.ack("rpc-call", {"method": "alice:secret", "timeoutMs": 100})
        assert ack["code"] == "not_available"
        assert daemon.of("rpc-request") == []


async def test_superseded_daemon_is_told_and_the_newest_serves(pair: Pair) -> None:
    a, b = pair
    async with Client(a) as old, Client(b) as new, Client(a) as caller:
        await old.register("m")
        await new.register("m")
        await until(lambda: old.of("rpc-superseded") == [{"method": "m"}])
        assert (await caller.ack("rpc-call", {"method": "m"}))["result"]["by"] == new.sid


async def test_limits_and_bad_names(pair: Pair) -> None:
    a, _ = pair
    a.replica.settings.rpc_max_methods_per_socket = 3
    async with Client(a) as daemon:
        for number in range(3):
            assert await daemon.ack("rpc-register", {"method": f"m{number}"}) == {"ok": True}
        assert await daemon.ack("rpc-register", {"method": "m0"}) == {"ok": True}
        assert await daemon.ack("rpc-register", {"method": "m3"}) == {
            "ok": False,
            "error": "Too many methods",
        }
        for bad in ("", "x" * 257, 5, None):
            assert (await daemon.ack("rpc-register", {"method": bad}))["error"] == "Invalid method name"
        assert daemon.of("rpc-error")[0] == {"type": "register", "error": "Too many methods"}


async def test_registered_while_redis_is_away_is_local_then_cluster(pair: Pair, valkey: Valkey) -> None:
    a, b = pair
    async with Client(a) as daemon, Client(b) as caller:
        valkey.kill()
        await until(lambda: not a.replica.backplane.available)  # type: ignore[union-attr]
        assert (await daemon.register("m"))["scope"] == "local"
        valkey.start()
        await until(lambda: daemon.of("rpc-registered")[-1]["scope"] == "cluster")
        assert (await caller.ack("rpc-call", {"method": "m", "params": 5}))["result"]["echo"] == 5


async def test_updates_are_numbered_and_everywhere_in_order(pair: Pair) -> None:
    a, b = pair
    headers = {"Authorization": f"Bearer {a.token()}"}
    async with Client(a) as one, Client(b) as two, Client(b, "other") as foreign, httpx.AsyncClient() as http:
        for number in range(30):
            at = (a, b)[number % 2]
            body = {
                "event": "update",
                "filter": {"type": "user-scoped-only"},
                "body": {"t": "x", "n": number},
            }
            answer = await http.post(f"{at.url}/v1/emit", json=body, headers=headers)
            assert answer.status_code == 202
            assert answer.json()["seq"] == number + 1
        for client in (one, two):
            await until(lambda client=client: len(client.of("update")) == 30)
            assert [u["seq"] for u in client.of("update")] == list(range(1, 31))
            assert [u["body"]["n"] for u in client.of("update")] == list(range(30))
        assert foreign.got == []


async def test_presence_over_replicas(pair: Pair) -> None:
    a, b = pair
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {a.token()}"}) as http:

        async def active() -> object:
            return (await http.get(f"{a.url}/v1/presence")).json()["active"]

        assert await active() is False
        async with Client(b) as ui:
            assert await active() is False
            assert await ui.ack("ping") == {}
            await ui.sio.emit("app-state", {"state": "active"})
            assert await ui.ack("ping") == {}
            assert await active() is True
        async with asyncio.timeout(10):
            while await active():
                await asyncio.sleep(0.01)


async def test_drain_tells_everybody_and_ends_running_calls_typed(pair: Pair) -> None:
    a, b = pair
    async with Client(a) as daemon, Client(b) as caller:
        await daemon.register("m")
        daemon.hangs = True
        call = asyncio.create_task(caller.ack("rpc-call", {"method": "m"}))
        await until(lambda: len(b.replica.calls) == 1)
        draining = asyncio.create_task(a.replica.drain())
        await until(lambda: daemon.of("server-draining"))
        async with httpx.AsyncClient() as http:
            ready = await http.get(f"{a.url}/ready")
        assert ready.status_code == 503
        assert ready.json()["checks"]["draining"] is True
        ack = await asyncio.wait_for(call, 10)
        assert ack["code"] == "target_disconnected"
        await asyncio.wait_for(draining, 10)
        await until(lambda: not daemon.sio.connected)


async def test_caller_that_leaves_cancels_its_call(pair: Pair) -> None:
    a, b = pair
    async with Client(a) as daemon:
        await daemon.register("m")
        daemon.hangs = True
        async with Client(b) as caller:
            await caller.sio.emit("rpc-call", {"method": "m", "requestId": "r"})
            await until(lambda: daemon.of("rpc-request"))
        await until(lambda: daemon.of("rpc-cancel") == [{"requestId": "r"}])


async def test_nothing_secret_reaches_redis_logs_or_metrics(
    pair: Pair, valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    """Parameters and results cross Redis in inboxes, which is what routing needs; they are stored nowhere, and
    tokens and keys cross nothing."""
    a, b = pair
    secret, result = "params-8d1f", "result-77c2"
    with valkey.client.monitor() as monitor:
        async with Client(a) as daemon, Client(b) as caller:
            daemon.sio.on("rpc-request", lambda payload: result)
            await daemon.register("m")
            ack = await caller.ack("rpc-call", {"method": "m", "params": secret})
            assert ack["result"] == result
            token = daemon.auth["token"]
        seen: list[str] = []
        valkey.client.publish("end", "of-monitor")
        while not seen or "of-monitor" not in seen[-1]:
            seen.append(str(monitor.next_command()["command"]))
    crossed = [line for line in seen if secret in line or result in line]
    assert crossed
    assert all(line.split()[0].upper() == "PUBLISH" and "moorage:inbox:" in line for line in crossed)
    everything = "\n".join(seen) + caplog.text
    everything += a.replica.metrics.render()[0].decode() + b.replica.metrics.render()[0].decode()
    assert token not in everything
    assert a.replica.settings.secret_key not in everything  # type: ignore[operator]
    assert secret not in caplog.text
    keys = {key.decode() for key in valkey.client.keys("*")}
    assert not [key for key in keys if "rpc" in key]
    assert all(valkey.client.ttl(key) == -1 for key in keys)


async def test_a_request_for_a_socket_that_is_leaving_waits_for_the_next(pair: Pair) -> None:
    """Between a socket's goodbye and its rooms being left (a disconnect handler may take its time)."""
    a, b = pair
    leaving = asyncio.Event()
    go = asyncio.Event()

    async def slow_disconnect(sid: str, reason: str) -> None:
        leaving.set()
        await go.wait()
        a.replica.door.disconnect(sid, reason)

    a.replica.server.on("disconnect", slow_disconnect)
    async with Client(b) as caller:
        async with Client(a) as old:
            await old.register("m")
        await asyncio.wait_for(leaving.wait(), 5)
        call = asyncio.create_task(caller.ack("rpc-call", {"method": "m", "params": 1}))
        await until(lambda: caller.of("rpc-waiting"))
        go.set()
        async with Client(a) as new:
            await new.register("m")
            assert (await asyncio.wait_for(call, 10))["result"] == {"echo": 1, "by": new.sid}


async def test_metrics_count_deliveries_on_both_sides_and_the_evidence_of_a_local_target(pair: Pair) -> None:
    a, b = pair

    def metric(at: Running, name: str) -> float:
        return float(at.replica.metrics.render()[0].decode().split(f"\n{name} ")[1].split()[0])

    async with Client(a) as one, Client(a) as two, Client(b) as three:
        emit = {"event": "ephemeral", "filter": {"type": "user-scoped-only"}, "body": {"type": "x"}}
        headers = {"Authorization": f"Bearer {a.token()}"}
        async with httpx.AsyncClient() as http:
            assert (await http.post(f"{a.url}/v1/emit", json=emit, headers=headers)).status_code == 202
        await until(lambda: all(c.of("ephemeral") for c in (one, two, three)))
        assert [metric(at, "broadcast_deliveries_total") for at in pair] == [2, 1]
        await two.register("m")
        two.hangs = True
        call = asyncio.create_task(one.ack("rpc-call", {"method": "m"}))
        await until(lambda: two.of("rpc-request"))
        await two.sio.disconnect()
        assert (await call)["code"] == "target_disconnected"
        assert metric(a, 'rpc_evidence_total{kind="socket_gone"}') == 1


async def test_a_call_that_outlasts_the_drain_is_answered_before_its_caller_is_closed() -> None:
    async with running(None, drain_ms=200) as alone, Client(alone) as daemon, Client(alone) as caller:
        await daemon.register("m")
        daemon.hangs = True
        call = asyncio.create_task(caller.ack("rpc-call", {"method": "m"}))
        waiting = asyncio.create_task(caller.ack("rpc-call", {"method": "nobody"}))
        await until(lambda: len(alone.replica.calls) == 2)
        await alone.replica.drain()
        acks = await asyncio.wait_for(asyncio.gather(call, waiting), 5)
        assert [(ack["code"], ack["delivered"]) for ack in acks] == [
            ("cancelled", "unknown"),
            ("cancelled", "no"),
        ]
        await until(lambda: not caller.sio.connected)
