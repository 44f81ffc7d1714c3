"""Connection state recovery of whole replicas, with a client that remembers what socket.io-client remembers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from moorage.client.connection import Connection

from ..valkey import Valkey
from .raw import Raw
from .running import Running, running

Until = Callable[..., Awaitable[None]]


@pytest_asyncio.fixture
async def pair(valkey: Valkey) -> AsyncIterator[list[Running]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(running(valkey.url, name)) for name in ("a", "b")]


@pytest_asyncio.fixture(params=["memory", "same replica", "other replica"])
async def places(request: pytest.FixtureRequest, valkey_factory: Any) -> AsyncIterator[list[Running]]:
    """Where a client is first, and where it comes back."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            yield [await stack.enter_async_context(running(None))] * 2
            return
        valkey = valkey_factory()
        both = [await stack.enter_async_context(running(valkey.url, name)) for name in ("a", "b")]
        yield both if request.param == "other replica" else [both[0], both[0]]


async def update(at: Running, number: int, account: str = "acc") -> None:
    await at.replica.updates.update(account, "user-scoped-only", None, {"number": number})


def numbers(client: Raw) -> list[int]:
    return [payload["body"]["number"] for payload in client.of("update")]


def client(at: Running, account: str = "acc", **auth: Any) -> Raw:
    return Raw(at.url, token=at.token(account), **auth)


async def test_what_was_missed_comes_once_and_in_order(places: list[Running], until: Until) -> None:
    first, second = places
    async with client(first) as raw:
        sid = raw.sid
        await update(second, 1)
        await until(lambda: numbers(raw) == [1])
        for cut in range(3):
            await raw.cut()
            await update(first, 10 * cut + 2)
            await update(second, 10 * cut + 3)
            await raw.connect((second, first)[cut % 2].url)
            assert raw.recovered
            assert raw.sid == sid
            await update(first, 10 * cut + 4)
            await until(lambda last=10 * cut + 4: numbers(raw)[-1:] == [last])
        assert numbers(raw) == [1, 2, 3, 4, 12, 13, 14, 22, 23, 24]


async def test_recovered_when_no_event_was_received_yet(places: list[Running], until: Until) -> None:
    first, second = places
    async with client(first) as raw:
        assert raw.offset is None
        await raw.cut()
        await raw.connect(second.url)
        assert raw.recovered
        await raw.cut()
        await update(second, 1)
        await raw.connect(first.url)
        assert raw.recovered
        await update(second, 2)
        await until(lambda: numbers(raw) == [1, 2])


async def test_only_its_own_events(places: list[Running], until: Until) -> None:
    first, second = places
    async with client(first) as raw, client(first, "other") as other:
        await raw.cut()
        await other.cut()
        await update(second, 1, "other")
        await update(second, 2)
        # the private id of another account, with a good token
        thief = client(second)
        thief.pid, thief.offset = other.pid, "0-0"
        await thief.connect()
        assert not thief.recovered
        assert thief.sid != other.sid
        await raw.connect(second.url)
        await update(second, 3)
        await until(lambda: numbers(raw) == [2, 3])
        await until(lambda: numbers(thief)[-1:] == [3])  # and 2, where it was quicker than the stream
        assert 1 not in numbers(thief)
        await thief.cut()


@pytest.mark.parametrize(
    "offset", ["", "x", "1", "1-2-3", "-1-0", "9" * 30, "99999999999999-0", "1-0", 7, {}]
)
async def test_a_bad_offset_gives_a_new_socket(places: list[Running], offset: Any, until: Until) -> None:
    first, second = places
    async with client(first) as raw:
        sid = raw.sid
        await update(first, 1)
        await until(lambda: numbers(raw) == [1])
        await raw.cut()
        raw.offset = offset
        await raw.connect(second.url)
        assert not raw.recovered
        assert raw.refusal is None
        assert raw.sid not in ("", sid)


async def test_a_bad_token_is_refused_as_usual(places: list[Running]) -> None:
    first, second = places
    async with client(first) as raw:
        await raw.cut()
        await raw.connect(second.url, token="no token")
        assert raw.refusal == "Invalid authentication token"


async def test_another_scope_is_another_socket(places: list[Running]) -> None:
    first, second = places
    async with client(first) as raw:
        await raw.cut()
        await raw.connect(second.url, clientType="machine-scoped", machineId="m")
        assert not raw.recovered


async def test_who_said_goodbye_is_not_recovered(places: list[Running], until: Until) -> None:
    first, second = places
    async with client(first) as raw:
        await raw.ws.send_str("41")
        await until(lambda: len(first.replica.clients) == 0)
        await update(second, 1)
        await raw.cut()
        await raw.connect(second.url)
        assert not raw.recovered


async def test_registrations_come_back_with_the_socket(places: list[Running], until: Until) -> None:
    first, second = places
    async with client(first) as daemon, client(second) as caller:
        await daemon.send("rpc-register", {"method": "m", "resumable": True})
        await daemon.send("app-state", {"state": "background"})
        await until(lambda: len(daemon.of("rpc-registered")) == 1)
        here = first.replica.clients.get(daemon.sid)
        assert here is not None
        await until(lambda: here.app_state == "background")
        await daemon.cut()
        await daemon.connect(second.url)
        assert daemon.recovered
        await caller.send("rpc-call", {"method": "m", "params": 5, "timeoutMs": 5000}, ack=1)
        await until(lambda: daemon.of("rpc-request"))
        assert daemon.of("rpc-request")[0]["params"] == 5
        registry = second.replica.registry
        entry = registry.resolve("rpc:acc:m")
        assert entry is not None and entry.resumable and entry.sid == daemon.sid
        restored = second.replica.clients.get(daemon.sid)
        assert restored is not None and restored.app_state == "background"


async def test_a_method_that_another_serves_by_now_stays_there(pair: list[Running], until: Until) -> None:
    first, second = pair
    async with client(first) as old, client(second) as new:
        await old.send("rpc-register", {"method": "m"})
        await until(lambda: len(old.of("rpc-registered")) == 1)
        await old.cut()
        await new.send("rpc-register", {"method": "m"})
        await until(lambda: len(new.of("rpc-registered")) == 1)
        await old.connect(second.url)
        assert old.recovered
        await until(lambda: old.of("rpc-superseded") == [{"method": "m"}])
        entry = second.replica.registry.resolve("rpc:acc:m")
        assert entry is not None and entry.sid == new.sid


async def test_an_old_connection_ends_when_its_client_is_elsewhere(pair: list[Running], until: Until) -> None:
    first, second = pair
    async with client(first) as raw:
        await raw.send("rpc-register", {"method": "m"})
        await until(lambda: len(raw.of("rpc-registered")) == 1)
        half_open, reader = raw.ws, raw._reader
        raw._http, http = None, raw._http
        await raw.connect(second.url)
        assert raw.recovered
        await until(lambda: first.replica.clients.get(raw.sid) is None)
        entry = first.replica.registry.resolve("rpc:acc:m")
        assert entry is not None and entry.replica == "b"
        assert reader is not None and http is not None
        await asyncio.wait_for(reader, 10)
        await half_open.close()
        await http.close()
        # and the new one still is what it was
        await update(first, 1)
        await until(lambda: numbers(raw) == [1])


async def test_an_answer_finds_its_caller_back_on_the_same_replica(valkey: Valkey, until: Until) -> None:
    async with running(valkey.url) as at, client(at) as caller, client(at) as daemon:
        await daemon.send("rpc-register", {"method": "m"})
        await until(lambda: len(daemon.of("rpc-registered")) == 1)
        await caller.send("rpc-call", {"method": "m", "params": 1}, ack=7)
        await caller.send("rpc-call", {"method": "m", "params": 2}, ack=8)
        await until(lambda: len(daemon.of("rpc-request")) == 2)
        await caller.cut()
        await until(lambda: at.replica.clients.get(caller.sid) is None)
        await daemon.ws.send_str(f'43{daemon.asked[0]}[{{"done":1}}]')  # while it is away
        await until(lambda: len(at.replica.calls) == 1)
        await caller.connect()
        assert caller.recovered
        await daemon.ws.send_str(f'43{daemon.asked[1]}[{{"done":2}}]')
        await until(lambda: len(caller.of("ack")) == 2)
        results = [ack["result"] for ack in caller.of("ack")]
        assert results == [{"done": 1}, {"done": 2}]
        assert not at.replica.returning._timers


async def test_recovered_after_its_only_replica_was_started_anew(valkey: Valkey, until: Until) -> None:
    async with running(valkey.url, "a") as at:
        raw = await client(at).connect()
        await raw.send("rpc-register", {"method": "m"})
        await update(at, 1)
        await until(lambda: len(raw.of("rpc-registered")) == 1 and numbers(raw) == [1])
        # a killed replica says nothing
        at.replica.cluster.writer.append = lambda *args, **options: None  # type: ignore[union-attr,method-assign]
        await raw.cut()
    async with running(valkey.url, "b") as at:
        await update(at, 2)
        await raw.connect(at.url)
        assert raw.recovered
        assert at.replica.registry.resolve("rpc:acc:m") is not None
        await update(at, 3)
        await until(lambda: numbers(raw) == [1, 2, 3])
        await raw.cut()


async def test_a_trimmed_offset_gives_a_new_socket(pair: list[Running], valkey: Valkey, until: Until) -> None:
    first, second = pair
    async with client(first) as raw, client(second) as other:
        await raw.cut()
        await raw.connect(second.url)
        await update(first, 1)
        await until(lambda: numbers(raw) == [1])
        await raw.cut()
        await update(first, 2)
        await until(lambda: numbers(other) == [1, 2])  # the second replica has it behind it
        valkey.client.xtrim("socket.io", 1, approximate=False)
        await raw.connect(second.url)
        assert not raw.recovered
        page, _ = second.replica.metrics.render()
        assert b'connection_recoveries_total{result="recovered"} 1.0' in page
        assert b'connection_recoveries_total{result="new"} 1.0' in page
        await update(first, 3)
        await until(lambda: numbers(raw) == [1, 3])


async def test_after_the_window_it_is_a_new_socket(valkey: Valkey, until: Until) -> None:
    async with running(valkey.url, recovery_window_ms=50) as at, client(at) as raw:
        await raw.cut()
        await until(lambda: at.replica.clients.get(raw.sid) is None)
        await asyncio.sleep(0.1)
        await raw.connect()
        assert not raw.recovered


async def test_two_who_come_back_as_one(places: list[Running], until: Until) -> None:
    first, second = places
    async with client(first) as raw:
        await update(first, 1)
        await until(lambda: numbers(raw) == [1])
        await raw.cut()
        await update(first, 2)
        twins = [client(at) for at in (first, second, second)]
        for twin in twins:
            twin.pid, twin.offset = raw.pid, raw.offset
        await asyncio.gather(*(twin.connect() for twin in twins), return_exceptions=True)
        # one of them is left with the socket, and only that one is told what comes
        await until(lambda: sum(twin.is_open for twin in twins) == 1)
        await update(first, 3)
        await until(lambda: sum(3 in numbers(twin) for twin in twins) == 1)
        assert all(numbers(twin) in ([], [2], [2, 3]) for twin in twins if twin.recovered)
        for twin in twins:
            await twin.cut()


async def test_while_redis_stands_still_it_is_a_new_socket(valkey: Valkey) -> None:
    async with running(valkey.url, redis_timeout_ms=200, redis_stall_ms=100) as at, client(at) as raw:
        await raw.cut()
        valkey.freeze()
        try:
            await raw.connect()
            assert not raw.recovered
            assert raw.sid
        finally:
            valkey.thaw()


async def test_off_with_a_window_of_zero(places: list[Running]) -> None:
    url = None if places[0].replica.backplane is None else places[0].replica.settings.redis_url
    async with running(url, "off", recovery_window_ms=0) as at, client(at) as raw:
        assert raw.pid is None
        await update(at, 1)


async def test_python_clients_get_no_offset_unless_they_ask(places: list[Running], until: Until) -> None:
    at = places[0]
    async with (
        Raw(at.url, python=True, token=at.token()) as plain,
        Raw(at.url, python=True, token=at.token(), offset=None) as asks,
        client(at) as javascript,
    ):
        assert plain.pid is None
        await update(at, 1)
        await until(lambda: plain.raw and asks.raw and javascript.raw)
        assert len(plain.raw[0]) == 2
        assert len(asks.raw[0]) == len(javascript.raw[0]) == 3
        assert asks.raw[0][2] == javascript.raw[0][2] == asks.offset


async def test_texts_do_not_become_offsets(places: list[Running], until: Until) -> None:
    first, second = places
    async with client(first) as raw:
        await update(first, 1)
        await until(lambda: numbers(raw) == [1])
        first.replica.manager.emit_now("state", ["connected"], [], volatile=True)
        first.replica.manager.emit_local("bare", [], [])
        await until(lambda: len(raw.events) == 3)
        assert [event[0] for event in raw.events[1:]] == ["state", "bare"]
        await raw.cut()
        await update(first, 2)
        await raw.connect(second.url)
        assert raw.recovered
        await until(lambda: numbers(raw) == [1, 2])


async def test_our_own_client_recovers(places: list[Running], until: Until) -> None:
    at, other = places
    got: list[int] = []
    connection = Connection(at.url, at.token())
    connection.on("update", lambda payload: got.append(payload["body"]["number"]))
    async with connection:
        for round in range(3):  # the first time before any event
            socket = connection._socket
            assert socket is not None
            socket.eio.ws._response.connection.transport.abort()
            await until(lambda socket=socket: not socket.alive)
            await update(other, round)
            await until(lambda round=round: got == [*range(round + 1)])
            assert connection.recovered


async def test_what_is_emitted_to_one_socket_is_not_missed(places: list[Running], until: Until) -> None:
    first, second = places
    async with client(first) as raw:
        await first.replica.server.emit("own", {"n": 1}, to=raw.sid)
        await first.replica.server.emit("all", {"n": 2})
        await until(lambda: len(raw.events) == 2)
        await raw.cut()
        await first.replica.server.emit("own", {"n": 3}, to=raw.sid)
        await first.replica.server.emit("own", {"n": 4}, to=raw.sid, skip_sid=raw.sid)
        await first.replica.server.emit("all", ({"n": 5}, b"\x00"))
        await raw.connect(second.url)
        assert raw.recovered
        await until(lambda: len(raw.events) == 4)
        assert [event[0] for event in raw.events] == ["own", "all", "own", "all"]
