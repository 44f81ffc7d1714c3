"""What only tasks in Redis have: their keys, and what a Redis that is slow, wiped or gone makes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from moorage.errors import BackplaneError, BackplaneUnavailable
from moorage.storage import tasks_redis
from moorage.storage.tasks import Hold, Record
from moorage.storage.tasks_redis import RedisTasks

from ..conftest import WAIT_S
from ..valkey import Valkey

TASK = "0" * 32
RECORD = Record(TASK, "acc", "s", "h", b"1")
LONG_MS = 600_000


@pytest.fixture
async def store(valkey: Valkey) -> AsyncIterator[RedisTasks]:
    made = RedisTasks(valkey.url, name="test", timeout_ms=1500)
    yield made
    await made.stop()


async def run(store: RedisTasks) -> None:
    """A task from start to end."""
    await store.add(RECORD)
    [ticket] = await store.take("w", ["h"], 1, 0, LONG_MS)
    assert await store.begin("w", ticket, LONG_MS, 3) is not None
    await store.ask(TASK, 1, f"{TASK}.q.1", b"1")
    await store.answer("acc", "s", f"{TASK}.q.1", b"1")
    await store.beat("w", ["h"], [(TASK, 1)])
    await store.finish(TASK, 1, "done", b"1")
    await store.acknowledge(TASK, 1, LONG_MS)


async def test_keys_share_a_slot_and_what_ended_expires(store: RedisTasks, valkey: Valkey) -> None:
    await run(store)
    keys = {key.decode(): valkey.client.pttl(key) for key in valkey.client.keys("*")}
    assert all(key.startswith("moorage:{tasks}:") for key in keys)
    kept = {key.removeprefix("moorage:{tasks}:") for key, ttl in keys.items() if ttl == -1}
    assert kept == {"queue:h", "handlers", "epoch"}
    assert valkey.client.xlen("moorage:{tasks}:queue:h") == 0
    assert set(keys) - {f"moorage:{{tasks}}:{key}" for key in kept} == {
        f"moorage:{{tasks}}:{name}" for name in (f"task:{TASK}", "of:acc:s", "wake:w")
    }


async def test_a_new_task_keeps_the_sessions_list(store: RedisTasks, valkey: Valkey) -> None:
    await run(store)
    await store.add(Record("1" * 32, "acc", "s", "h", b"1"))
    assert valkey.client.pttl("moorage:{tasks}:of:acc:s") == -1


async def test_what_a_frozen_redis_was_told_is_not_queued_when_it_wakes(
    store: RedisTasks, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = store._pool.command

    async def freeze_before_the_script(*args: object, **more: float) -> object:
        if args[0] == "EVAL":
            valkey.freeze()
        return await command(*args, **more)

    await store.take("w", ["h"], 1, 0, LONG_MS)
    monkeypatch.setattr(store._pool, "command", freeze_before_the_script)
    with pytest.raises(BackplaneError):
        await store.add(RECORD)
    monkeypatch.undo()
    valkey.thaw()
    assert await store.get("acc", TASK) is None
    assert valkey.client.xlen("moorage:{tasks}:queue:h") == 0


async def test_without_redis_nothing_is_queued_for_certain(store: RedisTasks, valkey: Valkey) -> None:
    valkey.kill()
    with pytest.raises(BackplaneUnavailable):
        await store.add(RECORD)


async def test_a_wiped_queue_is_made_again(store: RedisTasks, valkey: Valkey) -> None:
    assert await store.take("w", ["h"], 1, 0, LONG_MS) == []
    valkey.client.flushdb()
    await store.add(RECORD)
    async with asyncio.timeout(WAIT_S):
        while not (tickets := await store.take("w", ["h"], 1, 10, LONG_MS)):
            pass
    assert [ticket.task_id for ticket in tickets] == [TASK]


async def test_a_wiped_task_comes_back_with_its_holder(store: RedisTasks, valkey: Valkey) -> None:
    await store.add(RECORD)
    [ticket] = await store.take("w", ["h"], 1, 0, LONG_MS)
    begun = await store.begin("w", ticket, LONG_MS, 3)
    assert begun is not None
    valkey.client.flushdb()
    assert await store.beat("w", ["h"], [(TASK, 1)]) == [Hold.GONE]
    hold, epoch = await store.restore("w", begun.record, begun.epoch)
    assert hold is Hold.KEPT
    assert epoch != begun.epoch
    assert await store.beat("w", ["h"], [(TASK, 1)]) == [Hold.KEPT]
    latest = await store.latest("acc", "s")
    assert latest is not None
    assert (latest.id, latest.status, latest.attempts) == (TASK, "running", 1)
    # Its entry is given to another, who learns that it is taken.
    other = RedisTasks(valkey.url, name="other")
    async with asyncio.timeout(WAIT_S):
        while not (tickets := await other.take("w2", ["h"], 1, 10, LONG_MS)):
            pass
    assert await other.begin("w2", tickets[0], LONG_MS, 3) is None
    await store.beat("w", ["h"], [(TASK, 1)])
    [pending] = valkey.client.xpending_range("moorage:{tasks}:queue:h", "workers", "-", "+", 10)
    assert pending["consumer"] == b"w"
    await other.stop()


async def test_consumers_of_workers_that_are_gone_are_removed(
    store: RedisTasks, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_redis, "CONSUMER_IDLE_MS", 0)
    await store.add(RECORD)
    assert await store.take("holds", ["h"], 1, 0, LONG_MS)
    assert await store.take("gone", ["h"], 1, 0, LONG_MS) == []
    await asyncio.sleep(0.005)  # idle for more than 0 ms
    other = RedisTasks(valkey.url, name="other")
    assert await other.take("new", ["h"], 1, 0, LONG_MS) == []
    names = {row["name"] for row in valkey.client.xinfo_consumers("moorage:{tasks}:queue:h", "workers")}
    assert names == {b"holds", b"new"}
    await other.stop()
