"""The reader: every entry once and in order, whatever is in the stream and whatever happens to Redis."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from moorage.cluster import stream as stream_module
from moorage.cluster import wire
from moorage.cluster.stream import StreamReader
from moorage.storage.backplane import Backplane

from ..valkey import Valkey
from .nodes import Node
from .test_wire import POISON

Until = Callable[..., Awaitable[None]]
StartNode = Callable[..., Awaitable[Node]]


class Reading:
    """A reader and what it delivered: the ``nsp`` of each message, which these tests use as its name."""

    def __init__(self, url: str, count: int = 2000) -> None:
        self.backplane = Backplane(url, name="r", timeout_ms=400, stall_ms=100)
        self.got: list[str] = []
        self.fail_on = ""
        self.reader = StreamReader(self.backplane, ["s"], uid="me", count=count, deliver=self.deliver)

    def deliver(self, entry_id: bytes, message: wire.Message) -> None:
        if message.nsp == self.fail_on:
            raise RuntimeError("deliver failed")
        self.got.append(message.nsp)

    async def start(self) -> Reading:
        await self.backplane.start(0.2)
        self.reader.start()
        return self

    async def stop(self) -> None:
        await self.reader.stop()
        await self.backplane.stop()


@pytest_asyncio.fixture
async def reading(valkey: Valkey) -> AsyncIterator[Reading]:
    reading = await Reading(valkey.url).start()
    await asyncio.wait_for(reading.reader.placed.wait(), 5)
    yield reading
    await reading.stop()


def add(valkey: Valkey, name: object, uid: str = "other", id: str = "*") -> None:
    fields = {"uid": uid, "nsp": str(name), "type": "3", "data": "{}"}
    valkey.client.xadd("s", fields, id=id)  # type: ignore[arg-type]


async def test_starts_at_the_end_and_leaves_out_its_own(valkey: Valkey, until: Until) -> None:
    add(valkey, "before")
    reading = await Reading(valkey.url).start()
    await asyncio.wait_for(reading.reader.placed.wait(), 5)
    add(valkey, 1)
    add(valkey, "own", uid="me")
    add(valkey, 2)
    await until(lambda: len(reading.got) == 2)
    assert reading.got == ["1", "2"]
    assert not reading.reader.deaf
    await reading.stop()


async def test_the_first_entries_are_never_missed(valkey: Valkey, until: Until) -> None:
    """While the loop is busy and reads time out, an end that is asked for anew would lose entries."""
    for round_ in range(10):
        reading = await Reading(valkey.url).start()
        await asyncio.wait_for(reading.reader.placed.wait(), 5)
        await asyncio.sleep(0.01 * (round_ % 3))
        add(valkey, round_)
        await until(lambda: reading.got)  # noqa: B023
        await reading.stop()


async def test_kills(reading: Reading, valkey: Valkey, until: Until) -> None:
    for number in range(40):
        add(valkey, number)
        valkey.kill_clients("normal")
        add(valkey, f"{number}b")
        if number % 4 == 0:
            await asyncio.sleep(0.005)
    await until(lambda: len(reading.got) == 80)
    assert reading.got == [f"{n}{x}" for n in range(40) for x in ("", "b")]


async def test_freeze(reading: Reading, valkey: Valkey, until: Until) -> None:
    link = reading.reader._link
    add(valkey, 1)
    await until(lambda: reading.got)
    valkey.freeze()
    await until(lambda: not link.up)
    valkey.thaw()
    add(valkey, 2)
    await until(lambda: len(reading.got) == 2)
    assert reading.got == ["1", "2"]


async def test_restart_with_data_wiped(reading: Reading, valkey: Valkey, until: Until) -> None:
    add(valkey, 1)
    await until(lambda: reading.got)
    valkey.kill()
    valkey.start()
    add(valkey, 2)
    await until(lambda: len(reading.got) == 2)


async def test_a_new_stream_whose_ids_are_behind_ours(reading: Reading, valkey: Valkey, until: Until) -> None:
    add(valkey, 1)
    await until(lambda: reading.got)
    valkey.kill()
    valkey.start()
    add(valkey, 2, id="1-1")  # a server whose clock is wrong
    add(valkey, 3, id="1-2")
    await until(lambda: len(reading.got) == 3)
    add(valkey, 4)
    await until(lambda: len(reading.got) == 4)
    assert reading.got == ["1", "2", "3", "4"]


async def test_a_stream_that_lost_its_tail_is_not_read_again(
    reading: Reading, valkey: Valkey, until: Until
) -> None:
    for number in range(1, 4):
        add(valkey, number, id=f"{number}-0")
        await until(lambda: len(reading.got) == number)  # noqa: B023
    reading.reader._places["s"].anchors.append(b"2-0")
    valkey.kill()
    valkey.start(wait=True)
    add(valkey, 1, id="1-0")
    add(valkey, 2, id="2-0")
    # Only now is the reader told, by the next check of the position.
    valkey.kill_clients("normal")
    await until(lambda: reading.reader._places["s"].id == b"2-0" or len(reading.got) > 3)
    add(valkey, 3, id="3-0")
    add(valkey, 4, id="4-0")
    await until(lambda: reading.got[-1] == "4")
    assert reading.got == ["1", "2", "3", "3", "4"]


async def test_restart_with_data_kept(valkey_factory: Callable[..., Valkey], until: Until) -> None:
    kept = valkey_factory(aof=True)
    reading = await Reading(kept.url).start()
    await asyncio.wait_for(reading.reader.placed.wait(), 5)
    for number in range(3):
        add(kept, number)
        kept.kill()
        kept.start()
    add(kept, 3)
    await until(lambda: len(reading.got) == 4)
    assert reading.got == ["0", "1", "2", "3"]
    await reading.stop()


async def test_redis_away_at_the_start(valkey: Valkey, until: Until) -> None:
    valkey.kill()
    reading = await Reading(valkey.url).start()
    assert math.isnan(reading.reader.lag_ms)
    valkey.start()
    await asyncio.wait_for(reading.reader.placed.wait(), 5)
    add(valkey, 1)
    await until(lambda: reading.got)
    await reading.stop()


async def test_poison_is_skipped_and_counted(
    start_node: StartNode, valkey: Valkey, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = await start_node(), await start_node()
    b = await there.client("b", "r")
    poison = 0
    for fields in POISON:
        if fields:
            args = [*fields, b""] if len(fields) % 2 else fields
            valkey.client.execute_command("XADD", "socket.io", "*", *args)
            poison += 1
    for data in ('{"not":"a list"}', "[5]", "[]", '["e",NaN]'):
        text = f'{{"packet":{{"data":{data}}},"opts":{{"rooms":["r"],"except":[]}}}}'
        valkey.client.xadd("socket.io", {"uid": "u", "nsp": "/", "type": "3", "data": text})
        poison += 1
    for kind in ("1", "2", "13", "99", "7"):
        valkey.client.xadd("socket.io", {"uid": "u", "nsp": "/", "type": kind})
    valkey.client.xadd("socket.io", {"uid": "u", "nsp": "", "type": "3", "data": "{}"})
    valkey.client.xadd("socket.io", {"uid": "u", "nsp": "/unknown", "type": "3", "data": "{"})
    here.manager.emit_now("after", [], ["r"])
    await until(lambda: b.got)
    assert b.events == ["after"]
    assert there.manager.reader.poisoned == poison
    last = valkey.client.xinfo_stream("socket.io")["last-generated-id"]
    await until(lambda: here.manager.reader.position("socket.io") == last)
    assert there.manager.ignored == 7
    assert caplog.text.count("is skipped") == 2  # one line a minute and node


async def test_a_deliver_that_raises_is_skipped(reading: Reading, valkey: Valkey, until: Until) -> None:
    reading.fail_on = "2"
    for number in range(1, 4):
        add(valkey, number)
    await until(lambda: len(reading.got) == 2)
    assert reading.got == ["1", "3"]
    assert reading.reader.poisoned == 1


async def test_the_loop_turns_while_a_backlog_is_read(valkey: Valkey, until: Until) -> None:
    reading = await Reading(valkey.url, count=100_000).start()
    await asyncio.wait_for(reading.reader.placed.wait(), 5)
    pipe = valkey.client.pipeline(transaction=True)
    for number in range(5000):
        pipe.xadd("s", {"uid": "o", "nsp": str(number), "type": "3", "data": "{}"})
    pipe.execute()
    seen = [0]
    while seen[-1] < 5000:
        await asyncio.sleep(0)
        if len(reading.got) != seen[-1]:
            seen.append(len(reading.got))
    assert len(seen) > 5000 / stream_module.YIELD_EVERY / 2
    await reading.stop()


async def test_a_read_that_is_too_much_for_its_bound_is_made_smaller(reading: Reading, until: Until) -> None:
    link = reading.reader._link
    for _ in range(3):
        await until(
            lambda: link.up and link.stalled_for_ms
        )  # a read, and not the greeting of a new connection
        count = reading.reader._count
        link.drop("no reply in time")
        await until(lambda: reading.reader._count < count)  # noqa: B023
    await until(lambda: reading.reader._count == 2000)


async def test_lag_and_deafness(
    reading: Reading, valkey: Valkey, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "LAG_INTERVAL_S", 0.05)
    await until(lambda: reading.reader.lag_ms == 0)
    add(valkey, 1)
    await until(lambda: reading.got)
    reading.reader._tasks[0].cancel()  # a reader that hangs
    add(valkey, 2)
    await until(lambda: reading.reader.lag_ms > 0)
    await until(lambda: reading.reader.deaf)
    valkey.kill()
    await until(lambda: math.isnan(reading.reader.lag_ms))
    assert not reading.reader.deaf  # nobody hears anything now
    valkey.start()
    await until(lambda: reading.reader._backplane.available)
    assert not reading.reader.deaf  # the silence of the outage is not the reader's
    await until(lambda: reading.reader.deaf)


async def test_a_key_of_another_type(
    reading: Reading, valkey: Valkey, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "ERROR_PAUSE_S", 0.02)
    valkey.client.set("s", "no stream")
    await until(lambda: reading.reader.deaf)
    valkey.client.delete("s")
    add(valkey, 1)
    await until(lambda: reading.got)
    assert not reading.reader.deaf
