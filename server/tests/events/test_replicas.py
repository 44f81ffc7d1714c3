"""Two replicas over one Redis: one order, nothing lost, nothing twice, whatever happens to the connections."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.events.frames import Resume
from moorage.events.live import Live
from moorage.events.log import EventLog

from ..valkey import Valkey
from .watching import Watcher, running, watch

Until = Callable[..., Awaitable[None]]
Pair = tuple[EventLog, EventLog]


async def test_one_order_for_all_readers_whoever_appends(pair: Pair, until: Until) -> None:
    a, b = pair
    readers = [await watch(log, "s", waits=waits) for log in pair for waits in (False, True)]

    async def report(log: EventLog, name: str) -> None:
        for n in range(100):
            await log.append("s", "t", f"{name}{n}")
            if n % 10 == 0:
                await asyncio.sleep(0)

    await asyncio.gather(*(report(log, name) for log, name in ((a, "a"), (b, "b"), (a, "c"), (b, "d"))))
    await until(lambda: all(len(reader.seqs) == 400 for reader in readers))
    for reader in readers:
        assert reader.seqs == list(range(1, 401))
        assert reader.data == readers[0].data
    for name in "abcd":
        assert [d for d in readers[0].data if d[0] == name] == [f"{name}{n}" for n in range(100)]


async def test_every_reader_gets_every_event_and_a_late_end_takes_only_itself(
    pair: Pair, until: Until
) -> None:
    a, b = pair
    old, twin, far = await watch(a, "s"), await watch(a, "s"), await watch(b, "s")
    await a.append("s", "t", 1)
    await until(lambda: far.data == [1])
    old.end(None)
    await b.append("s", "t", 2)
    await until(lambda: twin.data == far.data == [1, 2])
    assert old.data == [1]


async def test_events_without_id_cross_replicas(pair: Pair, until: Until) -> None:
    a, b = pair
    here, there = await watch(a, "s"), await watch(b, "s")
    await a.append("s", "t", 1)
    await a.append("s", "delta", 2, transient=True)
    await a.append("s", "t", 3)
    await until(lambda: len(there.data) == 3)
    assert here.data == there.data == [1, 2, 3]
    assert there.seqs == [1, None, 2]


async def test_a_worker_without_readers_reaches_them(valkey: Valkey, until: Until) -> None:
    async with running(valkey.url, "w", readers=False) as worker, running(valkey.url, "r") as replica:
        reader = await watch(replica, "s")
        for n in range(20):
            await worker.append("s", "t", n)
        await until(lambda: reader.data == list(range(20)))


async def test_reading_while_others_append_loses_nothing(pair: Pair, until: Until) -> None:
    a, b = pair
    readers: list[Watcher] = []

    async def appends() -> None:
        for n in range(150):
            await a.append("s", "t", n)

    async def joins() -> None:
        for n in range(20):
            readers.append(await watch(b, "s", "0-0", waits=n % 2 == 0))
            await asyncio.sleep(0.002)

    await asyncio.gather(appends(), joins())
    await until(lambda: all(149 in reader.data for reader in readers))
    for reader in readers:
        assert set(reader.seqs) == set(range(1, 151))
        if reader.waits:
            assert reader.seqs == list(range(1, 151))


async def test_reads_are_shared(valkey: Valkey) -> None:
    async with running(valkey.url) as log:
        for n in range(60):
            await log.append("s", "t", n)
        await watch(log, "s")
        before = valkey.client.info("stats")["total_commands_processed"]
        readers = await asyncio.gather(*(watch(log, "s", "0-0") for _ in range(200)))
        commands = valkey.client.info("stats")["total_commands_processed"] - before
        assert all(reader.data == list(range(60)) for reader in readers)
        assert commands < 20


async def test_a_page_read_before_a_reader_came_is_not_the_end_for_it(valkey: Valkey, until: Until) -> None:
    """What was appended between the read of the shared page and the registration is in neither of both."""
    async with running(valkey.url) as log:
        await log.append("s", "t", 0)
        first = await watch(log, "s")
        read, held = log._replay._reads._read, asyncio.Event()

        async def slow(*key: Any) -> Any:
            span = await read(*key)
            await held.wait()
            return span

        log._replay._reads._read = slow
        early = asyncio.create_task(watch(log, "s", "0-0"))
        await until(lambda: log._replay._reads._running)
        await log.append("s", "t", 1)
        late = asyncio.create_task(watch(log, "s", "0-0"))
        await asyncio.sleep(0)
        await until(lambda: len(log.live.groups["s"].readers) == 3)
        held.set()
        assert (await late).data == [0, 0, 1] or (await late).data == [0, 1]
        assert set((await early).data) == {0, 1}
        assert first.data == [1]


@pytest.mark.parametrize("kind", ["pubsub", "normal"])
@pytest.mark.usefixtures("patient")
async def test_lost_connections_lose_and_double_nothing(
    pair: Pair, valkey: Valkey, until: Until, kind: str
) -> None:
    a, b = pair
    readers = [await watch(a, "s"), await watch(b, "s")]
    appended: list[Any] = []

    async def report(log: EventLog, name: str) -> None:
        for n in range(60):
            appended.append(await log.append("s", "t", f"{name}{n}"))
            await asyncio.sleep(0.005)

    async def kill() -> None:
        for _ in range(12):
            valkey.kill_clients(kind)
            await asyncio.sleep(0.02)

    await asyncio.gather(report(a, "a"), report(b, "b"), kill())
    await until(lambda: all(len(reader.seqs) >= 120 for reader in readers))
    for reader in readers:
        assert reader.seqs == list(range(1, 121))
        assert sorted(reader.data) == sorted(f"{name}{n}" for n in range(60) for name in "ab")
    assert sorted(a.seq or 0 for a in appended) == list(range(1, 121))
    by_seq = {frame["seq"]: frame["id"] for frame in readers[0].events}
    assert all(by_seq[one.seq] == one.id for one in appended)


async def test_a_dropped_publish_is_counted_and_made_good(pair: Pair, until: Until) -> None:
    a, b = pair
    dropped: list[str] = []
    a.on_publish_dropped = dropped.append
    there = await watch(b, "s")
    await asyncio.gather(*(a.append("s", "t", n) for n in range(1200)))
    assert dropped == ["in_flight"] * 200
    await until(lambda: there.seqs == list(range(1, 1201)) or there.of("replay_gap"))
    await a.append("s", "t", "more")
    await until(lambda: there.data[-1] == "more")


async def test_deleting_ends_readers_everywhere(pair: Pair, valkey: Valkey, until: Until) -> None:
    a, b = pair
    here, there = await watch(a, "s"), await watch(b, "s")
    await a.delete("s")
    assert here.code == 4404
    await until(lambda: there.code == 4404)
    assert 0 < valkey.client.pttl("moorage:events:{s}:meta") <= 21_600_000
    missed = await watch(b, "m")
    for log in pair:
        log.live.message = lambda payload: None  # type: ignore[method-assign]
    valkey.kill_clients("pubsub")  # the deletion is not heard of
    await a.delete("m")
    await until(lambda: missed.code == 4404)


async def test_a_wiped_log_is_told_to_those_who_read_it(pair: Pair, valkey: Valkey, until: Until) -> None:
    a, b = pair
    here, there = await watch(a, "s"), await watch(b, "s")
    for n in range(5):
        await a.append("s", "t", n)
    await until(lambda: len(there.seqs) == 5)
    valkey.client.flushall()
    after = await a.append("s", "t", "new")
    assert after.seq == 1
    for reader in (here, there):
        await until(lambda reader=reader: reader.of("replay_gap"))
        assert reader.of("replay_gap")[0]["reason"] == "epoch"
        assert reader.of("ws_ready")[-1]["epoch"] == (await a.head("s")).epoch
        await until(lambda reader=reader: reader.data[-1] == "new")
    assert (await a.append("s", "t", "next")).seq == 2
    await until(lambda: here.data[-1] == there.data[-1] == "next")


async def test_a_log_that_lost_its_tail_is_told(valkey: Valkey, until: Until) -> None:
    async with running(valkey.url) as log:
        for n in range(3):
            await log.append("s", "t", n)
        saved = {key: valkey.client.dump(key) for key in ("moorage:events:{s}", "moorage:events:{s}:meta")}
        for n in range(3):
            await log.append("s", "t", n)
        reader = await watch(log, "s")
        head = await log.head("s")
        for key, value in saved.items():
            valkey.client.restore(key, 0, value, replace=True)  # type: ignore[arg-type]
        last_ms = int(head.last_id.split("-")[0])
        await until(lambda: valkey.client.time()[0] * 1000 + valkey.client.time()[1] // 1000 > last_ms + 1)  # type: ignore[index]
        await log.append("s", "t", "again four")
        await until(lambda: reader.of("replay_gap"))
        assert reader.of("replay_gap")[0]["reason"] == "epoch"
        late = await watch(log, "s", Resume(head.last_id, 6, head.epoch))
        assert [gap["reason"] for gap in late.of("replay_gap")] == ["epoch"]


async def test_trimmed_while_the_subscription_was_lost(pair: Pair, valkey: Valkey, until: Until) -> None:
    a, b = pair
    there = await watch(b, "s")
    await a.append("s", "t", 0)
    await until(lambda: there.data == [0])
    b._backplane.unsubscribe("moorage:live", b.live.message)  # type: ignore[union-attr]
    await asyncio.gather(*(a.append("s", "t", n) for n in range(700)))
    await b._backplane.subscribe("moorage:live", b.live.message)  # type: ignore[union-attr]
    b.live.catch_up()
    await until(lambda: there.of("replay_gap"))
    head = await a.head("s")
    gap = {
        "type": "replay_gap",
        "reason": "trimmed",
        "oldest": head.oldest,
        "missed": (head.oldest_seq or 0) - 2,
    }
    assert there.of("replay_gap") == [gap]
    await a.append("s", "t", "on")
    await until(lambda: there.data == [0, "on"])


POISON = [
    b"", b"\x00", b"{", b"null", b"[]", b"5", b"\xff\xfe", b'{"origin":1}', b'{"origin":"x"}',
    b'{"origin":"x","sessionId":5}', b'{"origin":"x","sessionId":"s"}',
    b'{"origin":"x","sessionId":"s","id":"1-1"}', b'{"origin":"x","sessionId":"s","id":"zz","seq":1,"epoch":"e"}',
    b'{"origin":"x","sessionId":"s","event":"text"}', b'{"origin":"x","sessionId":"s","event":{"a":"\xff"}}',
    b'{"origin":"x","sessionId":"s","id":"1-1","seq":-1,"epoch":"e","event":{}}',
    b'{"origin":"x","sessionId":"s","id":"1-1","seq":99999999999999999999999,"epoch":"e","event":{}}',
    b'{"origin":"x","sessionId":"s","id":"1-1","seq":1.5,"epoch":"e","event":{}}',
    b'{"origin":"x","sessionId":"s","id":"5-5","seq":5,"epoch":"unknown","event":{}}',
    b'{"origin":"x","sessionId":"s","deleted":true}', b'{"origin":"x","sessionId":"s","deleted":"yes"}',
]  # fmt: skip


async def test_poison_on_the_live_channel(pair: Pair, valkey: Valkey, until: Until) -> None:
    a, b = pair
    reader = await watch(b, "s")
    await a.append("s", "t", 0)
    epoch = (await a.head("s")).epoch
    far = (
        b'{"origin":"x","sessionId":"s","id":"1-1","seq":9007199254740000,"epoch":"%b","event":{}}'
        % epoch.encode()
    )
    for payload in [*POISON, far]:
        valkey.client.publish("moorage:live", payload)
    for n in range(1, 20):
        await a.append("s", "t", n)
    await until(lambda: len(reader.seqs) >= 20)
    assert reader.seqs == list(range(1, 21))
    assert reader.code is None
    assert not reader.of("replay_gap")
    await until(lambda: not b.live.groups["s"].order.behind)
    assert b.live.malformed >= 10


@given(st.binary(max_size=80) | st.text().map(str.encode)
       | st.dictionaries(st.sampled_from(["origin", "sessionId", "epoch", "id", "seq", "event", "deleted"]),
                         st.none() | st.text(max_size=5) | st.integers() | st.booleans() | st.just({"a": 1}))
       .map(lambda d: json.dumps(d).encode()))  # fmt: skip
def test_no_message_raises(payload: bytes) -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError

    Live(never, never).message(payload)


async def test_catching_up_many_sessions(pair: Pair, valkey: Valkey, until: Until) -> None:
    a, b = pair
    readers = {f"s{n}": await watch(b, f"s{n}") for n in range(60)}
    order = list(readers)
    random.Random(5).shuffle(order)
    b._backplane._subscriber.drop("test")  # type: ignore[union-attr]
    await asyncio.gather(*(a.append(session_id, "t", session_id) for session_id in order))
    await until(lambda: all(reader.data == [session_id] for session_id, reader in readers.items()))
