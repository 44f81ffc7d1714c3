"""Targets on nodes that are no members: found by asking, gone only by two answered look-ups without them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from moorage.rpc import foreign as foreign_module
from moorage.rpc.calls import Calls
from moorage.rpc.foreign import Foreign
from moorage.rpc.registry import Registry
from moorage.settings import load

from .test_calls import FakeCarrier


class FakeRequests:
    """A cluster with one foreign node; ``rooms``: room or sid -> sids there."""

    def __init__(self) -> None:
        self.nodes = 2
        self.rooms: dict[str, list[str]] = {}
        self.complete = True
        self.looks = self.counts = 0
        self.emitted: list[tuple[str, str, Any]] = []
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def node_count(self) -> int:
        self.counts += 1
        await asyncio.sleep(0)
        return self.nodes

    async def fetch_sockets(
        self, rooms: Collection[str], except_: Collection[str], timeout_ms: int
    ) -> tuple[list[Any], bool]:
        self.looks += 1
        await asyncio.sleep(0)
        found = [SimpleNamespace(id=sid) for room in rooms for sid in self.rooms.get(room, [])]
        return (found if self.complete else []), self.complete

    async def emit_with_ack(
        self, rooms: str, event: str, args: Sequence[Any], timeout_ms: int, *, single: bool
    ) -> tuple[list[Any], bool]:
        self.emitted.append((rooms, event, args[0]))
        return [await self.answer], True


class Bench:
    def __init__(self, grace_ms: int = 20_000) -> None:
        self.requests = FakeRequests()
        self.registry = Registry("a")
        self.emitted: list[tuple[str, Any, list[str]]] = []
        self.foreign = Foreign(
            self.requests,
            self.registry,
            lambda: 1,
            lambda event, args, rooms: self.emitted.append((event, args, rooms)),
        )
        self.here = FakeCarrier()
        settings = load(replica_id="a", rpc_reconnect_grace_ms=grace_ms)
        self.calls = Calls(settings, self.registry, self.here, FakeCarrier(), self.foreign)

    def call(self, **payload: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.start("caller", "acc", {"method": "m", "requestId": "r", **payload}, future.set_result)
        return future


@pytest.fixture
async def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(foreign_module, "FIND_EVERY_S", 0.01)
    monkeypatch.setattr(foreign_module, "WATCH_EVERY_S", 0.01)
    bench = Bench()
    yield bench
    await bench.foreign.stop()


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


async def test_a_target_on_a_foreign_node_is_found_and_called(bench: Bench) -> None:
    bench.requests.rooms = {"rpc:acc:m": ["node-sid"], "node-sid": ["node-sid"]}
    future = bench.call(params=1)
    await until(lambda: bench.requests.emitted)
    assert bench.requests.emitted == [
        ("node-sid", "rpc-request", {"method": "m", "params": 1, "requestId": "r"})
    ]
    bench.requests.answer.set_result("done")
    assert (await asyncio.wait_for(future, 5)) == {"ok": True, "result": "done"}
    assert len(bench.registry) == 0


async def test_one_that_appears_in_the_grace_is_found(bench: Bench) -> None:
    future = bench.call()
    await until(lambda: bench.requests.looks >= 3)
    bench.requests.rooms = {"rpc:acc:m": ["late"], "late": ["late"]}
    bench.requests.answer.set_result(1)
    assert (await asyncio.wait_for(future, 5))["ok"]


@pytest.mark.usefixtures("bench")
async def test_nobody_is_asked_where_all_nodes_are_members() -> None:
    alone = Bench(grace_ms=200)
    alone.requests.nodes = 1
    assert (await asyncio.wait_for(alone.call(), 5))["code"] == "not_available"
    assert alone.requests.looks == 0
    await alone.foreign.stop()


async def test_gone_after_two_answered_look_ups_without_it(bench: Bench) -> None:
    bench.requests.rooms = {"rpc:acc:m": ["s"], "s": ["s"]}
    future = bench.call()
    await until(lambda: bench.requests.emitted)
    bench.requests.rooms = {}
    ack = await asyncio.wait_for(future, 5)
    assert (ack["code"], ack["delivered"]) == ("target_disconnected", "unknown")


async def test_unanswered_look_ups_say_nothing(bench: Bench) -> None:
    bench.requests.rooms = {"rpc:acc:m": ["s"], "s": ["s"]}
    future = bench.call()
    await until(lambda: bench.requests.emitted)
    bench.requests.complete = False
    looks = bench.requests.looks
    await until(lambda: bench.requests.looks > looks + 5)
    assert not future.done()
    bench.requests.answer.set_result(1)
    assert (await asyncio.wait_for(future, 5))["ok"]


async def test_cancel_reaches_the_foreign_socket(bench: Bench) -> None:
    bench.requests.rooms = {"rpc:acc:m": ["s"], "s": ["s"]}
    future = bench.call()
    await until(lambda: bench.requests.emitted)
    assert bench.calls.cancel("acc", "r")
    assert (await future)["code"] == "cancelled"
    assert bench.emitted == [("rpc-cancel", [{"requestId": "r"}], ["s"])]


async def test_a_member_that_registers_while_we_look_serves(bench: Bench) -> None:
    future = bench.call()
    await until(lambda: bench.requests.looks >= 1)
    bench.registry.join("rpc:acc:m", "local")
    bench.here.sent[0].on_end("answer", "local")
    assert (await asyncio.wait_for(future, 5))["result"] == "local"
    await until(lambda: not bench.foreign._searches)


async def test_many_waiting_methods_count_the_nodes_together(bench: Bench) -> None:
    bench.requests.nodes = 1
    for number in range(20):
        bench.calls.start(
            "caller", "acc", {"method": f"m{number}", "requestId": f"r{number}"}, lambda ack: None
        )
    await until(lambda: bench.requests.counts >= 3)
    assert bench.requests.counts < 20
    assert bench.requests.looks == 0
