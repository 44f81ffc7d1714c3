"""Redis is away, refuses, hangs, is wiped: tasks go on, the hole is told, nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.errors import BackplaneError
from moorage.events import reach
from moorage.events.breaker import BreakerState
from moorage.events.log import EventLog

from ..valkey import Valkey
from .watching import running, watch

Until = Callable[..., Awaitable[None]]


async def until_open(log: EventLog) -> None:
    async with asyncio.timeout(10):
        while log.breaker is not BreakerState.OPEN:
            await log.append("filler", "t", 0)


async def test_down_and_back(valkey: Valkey, until: Until) -> None:
    counted: list[str] = []
    async with running(valkey.url) as log:
        log.on_append = counted.append
        reader = await watch(log, "s")
        assert (await log.append("s", "t", 0)).seq == 1
        valkey.kill()
        await until_open(log)
        for n in range(1, 6):
            appended = await log.append("s", "t", n)
            assert (appended.id, appended.seq) == (None, None)
        assert reader.data == [0, 1, 2, 3, 4, 5]
        assert reader.seqs == [1, None, None, None, None, None]
        with pytest.raises(BackplaneError):
            await log.head("s")
        valkey.start()
        await until(lambda: log.breaker is BreakerState.CLOSED)
        back = await log.append("s", "t", 6)
        await until(lambda: reader.data[-1] == 6)
        # The old log is gone with the Redis, which is told; the hole stands before anything newer.
        assert [gap["reason"] for gap in reader.of("replay_gap")] == ["epoch"]
        assert reader.seqs[-2:] == [1, 2]
        first, *rest = (await log.page("s", "0-0", 10)).events
        assert first["event"]["type"] == "unlogged"
        at = first["event"]["data"]
        assert at["count"] == 5 and at["from"] <= at["to"]
        assert [frame["id"] for frame in rest] == [back.id]
        assert counted.count("unlogged") >= 5


async def test_a_kept_log_goes_on_with_the_hole_told_live(
    valkey_factory: Callable[..., Valkey], until: Until
) -> None:
    valkey = valkey_factory(aof=True)
    async with running(valkey.url, "a") as a, running(valkey.url, "b") as b:
        here, there = await watch(a, "s"), await watch(b, "s")
        await a.append("s", "t", 0)
        valkey.kill()
        await until_open(a)
        await a.append("s", "t", 1)
        await a.append("s", "t", 2)
        valkey.start()
        await until(lambda: a.breaker is BreakerState.CLOSED)
        await a.append("s", "t", 3)
        await until(lambda: there.data[-1:] == [3] and here.data[-1:] == [3])
        assert there.seqs == [1, 2, 3]
        assert there.events[1]["event"]["type"] == "unlogged"
        assert there.events[1]["event"]["data"]["count"] == 2
        assert here.seqs == [1, None, None, 2, 3]
        assert not here.of("replay_gap") and not there.of("replay_gap")


async def test_the_probe_does_not_count_on_those_who_gave_up(
    valkey: Valkey, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis is back before what gave up waiting for it is cleared away."""
    monkeypatch.setattr(reach, "LOOK_S", 3.0)
    async with running(valkey.url) as log:
        valkey.kill()
        await until(lambda: not log._backplane._commands.up)  # type: ignore[union-attr]
        await asyncio.gather(*(log.append(session, "t", 0) for session in "abc"))
        assert log.breaker is BreakerState.OPEN
        valkey.start()
        await until(lambda: log.breaker is BreakerState.CLOSED)
        assert (await log.append("a", "t", 0)).id is not None


@pytest.mark.usefixtures("patient")
async def test_a_moment_without_connection_costs_no_event_its_id(valkey: Valkey) -> None:
    async with running(valkey.url) as log:
        reader = await watch(log, "s")
        log._backplane._commands.drop("test")  # type: ignore[union-attr]
        appended = await asyncio.gather(*(log.append("s", "t", n) for n in range(10)))
        assert [one.seq for one in appended] == list(range(1, 11))
        assert reader.data == list(range(10))
        assert log.breaker is BreakerState.CLOSED


async def test_a_redis_that_refuses(valkey: Valkey, until: Until) -> None:
    async with running(valkey.url, "a") as log, running(valkey.url, "b") as other:
        log._writer.probe_after_s = 0.05
        here, there = await watch(log, "s"), await watch(other, "s")
        await log.append("s", "t", 0)
        valkey.client.config_set("maxmemory", "1")
        for n in range(1, 5):
            assert (await log.append("s", "t", n)).id is None
        assert log.breaker is not BreakerState.CLOSED
        # Publishing is not refused: readers elsewhere miss nothing either.
        await until(lambda: there.data == [0, 1, 2, 3, 4])
        assert here.data == there.data
        valkey.client.config_set("maxmemory", "0")
        await until(lambda: log.breaker is BreakerState.CLOSED)
        await until(lambda: there.events[-1]["event"]["type"] == "unlogged")
        assert there.data[-1]["count"] == 4
        assert (await log.append("s", "t", 5)).seq == 3
        await until(lambda: there.data[-1] == 5 and here.data[-1] == 5)
        assert there.seqs == here.seqs == [1, None, None, None, None, 2, 3]


@pytest.mark.parametrize("leave", ["withdrawn", "deleted"])
async def test_the_breaker_closes_whatever_became_of_what_waited(
    valkey_factory: Callable[..., Valkey], until: Until, leave: str
) -> None:
    valkey = valkey_factory(aof=True)
    async with running(valkey.url, "a") as log, running(valkey.url, "b") as other:
        await log.append("s", "t", 0)
        valkey.kill()
        await until(lambda: not log._store.available)
        await asyncio.gather(*(log.append("s", "t", n) for n in range(5)))
        assert log.breaker is BreakerState.OPEN
        if leave == "deleted":
            log._writer.probe, probe = lambda: None, log._writer.probe  # type: ignore[method-assign]
            valkey.start()
            await until(lambda: other._store.available)
            await other.delete("s")
            log._writer.probe = probe  # type: ignore[method-assign]
            await until(lambda: log._store.available)
            log._writer.probe()
        else:
            valkey.start()
        await until(lambda: log.breaker is BreakerState.CLOSED)
        await until(lambda: not log._writer._lanes and not log._writer._holes)
        assert (await log.append("x", "t", 1)).seq == 1


async def test_a_single_failure_is_told_with_the_next_event(valkey: Valkey) -> None:
    async with running(valkey.url) as log:
        reader = await watch(log, "s")
        valkey.client.config_set("maxmemory", "1")
        await log.append("s", "t", 1)
        valkey.client.config_set("maxmemory", "0")
        assert (await log.append("s", "t", 2)).seq == 2
        assert reader.seqs == [None, 1, 2]
        assert reader.events[1]["event"]["data"]["count"] == 1


@pytest.mark.usefixtures("patient")
async def test_a_hang_shorter_than_the_bound_doubles_nothing(valkey: Valkey, until: Until) -> None:
    """The reply is lost, but Redis has done it when it wakes: the event is found by its number."""
    async with running(valkey.url, timeout_ms=200) as log:
        reader = await watch(log, "s")
        await log.append("s", "t", 0)
        valkey.freeze()
        waiting = [asyncio.create_task(log.append("s", "t", n)) for n in range(1, 6)]
        await until(lambda: not log._backplane._commands.up)  # type: ignore[union-attr]
        valkey.thaw()
        appended = await asyncio.gather(*waiting)
        assert [one.seq for one in appended] == [2, 3, 4, 5, 6]
        assert reader.data == [0, 1, 2, 3, 4, 5]
        assert reader.seqs == [1, 2, 3, 4, 5, 6]
        assert [frame["id"] for frame in reader.events[1:]] == [one.id for one in appended]
        assert len((await log.page("s", "0-0", 100)).events) == 6


async def test_a_hang_does_not_hold_up_who_reports(valkey: Valkey, until: Until) -> None:
    async with running(valkey.url, timeout_ms=200) as log:
        reader = await watch(log, "s")
        valkey.freeze()
        try:
            async with asyncio.timeout(8):
                while log.breaker is BreakerState.CLOSED:
                    await log.append("s", "t", "hanging")
                await log.append("s", "t", "open")
            assert reader.data[-1] == "open"
        finally:
            valkey.thaw()
        await until(lambda: log.breaker is BreakerState.CLOSED)
        await log.append("s", "t", "back")
        await until(lambda: reader.data[-1] == "back")
        numbers = [seq for seq in reader.seqs if seq is not None]
        assert numbers == list(range(1, len(numbers) + 1))
        told = [frame for frame in reader.events if frame["event"]["type"] == "unlogged"]
        without = [frame for frame in reader.events if frame["seq"] is None]
        assert sum(frame["event"]["data"]["count"] for frame in told) == len(without)


async def test_a_log_cannot_be_read_until_it_can(valkey: Valkey, until: Until) -> None:
    async with running(valkey.url) as log:
        valkey.kill()
        await until(lambda: not log._backplane._commands.up)  # type: ignore[union-attr]
        waiting = asyncio.create_task(watch(log, "s", "0-0"))
        await asyncio.sleep(0.05)
        valkey.start()
        reader = await waiting
        assert [frame["type"] for frame in reader.frames] == ["ws_ready", "replay_done"]


async def test_a_reader_is_asked_to_come_again(
    valkey: Valkey, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(valkey.url) as log:
        placed = await watch(log, "placed")
        monkeypatch.setattr("moorage.events.replay.START_BOUND_S", 0.1)
        valkey.kill()
        await until(lambda: not log._backplane._commands.up)  # type: ignore[union-attr]
        assert (await watch(log, "s")).code == 1013
        assert (await watch(log, "placed", "0-0")).code == 1013
        assert placed.code is None
        assert "s" not in log.live.groups


async def test_a_deletion_is_made_good(valkey_factory: Callable[..., Valkey], until: Until) -> None:
    valkey = valkey_factory(aof=True)
    async with running(valkey.url) as log:
        await log.append("s", "t", 0)
        reader = await watch(log, "s")
        valkey.kill()
        await log.delete("s")
        assert reader.code == 4404
        valkey.start()
        await until(lambda: valkey.client.hget("moorage:events:{s}:meta", "deleted") == b"1")
        assert not valkey.client.exists("moorage:events:{s}")


@pytest.mark.usefixtures("patient")
async def test_scripts_are_loaded_again(valkey: Valkey) -> None:
    async with running(valkey.url) as log:
        reader = await watch(log, "s")
        for n in range(3):
            valkey.client.script_flush()
            await asyncio.gather(*(log.append("s", "t", (n, m)) for m in range(20)))
        valkey.client.script_flush()
        assert (await log.head("s")).last_seq == 60
        assert reader.seqs == list(range(1, 61))


async def test_publishing_may_be_forbidden(valkey: Valkey, until: Until) -> None:
    valkey.client.execute_command("ACL", "SETUSER", "default", "-publish")
    dropped: list[Any] = []
    async with running(valkey.url) as log:
        log.on_publish_dropped = dropped.append
        reader = await watch(log, "s")
        assert (await log.append("s", "t", 1)).seq == 1
        await log.append("s", "t", 2, transient=True)
        await until(lambda: len(dropped) == 2)
        assert dropped == ["failed", "failed"]
        assert reader.data == [1, 2]


async def test_stopping_gives_up_what_waits(valkey: Valkey) -> None:
    async with running(valkey.url) as log:
        valkey.kill()
        waiting = asyncio.create_task(log.append("s", "t", 1))
        await asyncio.sleep(0)
    assert (await waiting).id is None
