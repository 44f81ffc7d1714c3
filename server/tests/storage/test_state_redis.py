"""What only the Redis state has: its keys, and what happens when Redis is not there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from moorage.errors import BackplaneError, BackplaneReply, BackplaneUnavailable, BackplaneUnknown
from moorage.storage.state_redis import RedisState

from ..valkey import Valkey

TIMEOUT_MS = 1500
"""The bound counts while this process stands still, so it is long beside what a busy machine does."""


@pytest.fixture
async def state(valkey: Valkey) -> AsyncIterator[RedisState]:
    made = RedisState(valkey.url, name="test", timeout_ms=TIMEOUT_MS)
    yield made
    await made.stop()


async def test_keys_have_the_account_as_hash_tag_and_never_expire(state: RedisState, valkey: Valkey) -> None:
    session, _ = await state.create_session("acc", "t", None)
    added = await state.add_message("acc", session.id, "x", "l")
    assert added is not None
    await state.set_update_seq("acc", session.id, added[0], 1)
    keys = sorted(key.decode() for key in valkey.client.keys("*"))
    assert len(keys) == 7
    assert all(key.startswith("moorage:state:{acc}:") for key in keys)
    assert [valkey.client.pttl(key) for key in keys] == [-1] * 7
    await state.delete_session("acc", session.id)
    assert [key.decode() for key in valkey.client.keys("*")] == ["moorage:state:{acc}:seq"]


async def test_two_replicas_see_the_same(state: RedisState, valkey: Valkey) -> None:
    other = RedisState(valkey.url)
    try:
        made = await asyncio.gather(
            *(one.create_session("a", "t", None) for one in (state, other) for _ in range(8))
        )
        assert sum(created for _, created in made) == 1
        added = await asyncio.gather(
            *(one.add_message("a", made[0][0].id, "x", f"l{n}") for one in (state, other) for n in range(8))
        )
        assert sorted(message.seq for message, new in filter(None, added) if new) == list(range(1, 9))
    finally:
        await other.stop()


async def test_redis_away_is_unavailable_and_heals(state: RedisState, valkey: Valkey) -> None:
    await state.create_session("a", "t", None)
    valkey.kill()
    with pytest.raises(BackplaneError):
        await state.create_session("a", "t", None)
    with pytest.raises(BackplaneUnavailable):
        await state.create_session("a", "t", None)
    valkey.start()
    _, created = await state.create_session("a", "t", None)
    assert created


async def test_a_frozen_redis_is_unknown_within_the_bound(state: RedisState, valkey: Valkey) -> None:
    session, _ = await state.create_session("a", "t", None)
    valkey.freeze()
    start = time.monotonic()
    with pytest.raises(BackplaneUnknown):
        await state.add_message("a", session.id, "x", "l")
    # Four times the bound: a machine may be slow, but nothing may hang.
    assert time.monotonic() - start < 4 * TIMEOUT_MS / 1000
    valkey.thaw()
    again = await state.add_message("a", session.id, "x", "l")
    assert again is not None
    assert again[0].seq == 1


async def test_a_cancelled_command_leaves_no_reply_for_the_next(state: RedisState, valkey: Valkey) -> None:
    session, _ = await state.create_session("a", "t", None)
    valkey.freeze()
    task = asyncio.create_task(state.list_messages("a", session.id, 0, 10))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    valkey.thaw()
    for _ in range(5):
        assert [s.id for s in await state.list_sessions("a")] == [session.id]


async def test_what_redis_refuses_is_a_reply(state: RedisState, valkey: Valkey) -> None:
    valkey.client.set("moorage:state:{a}:tags", "not a hash")
    with pytest.raises(BackplaneReply, match="WRONGTYPE"):
        await state.create_session("a", "t", None)
    valkey.client.delete("moorage:state:{a}:tags")
    _, created = await state.create_session("a", "t", None)
    assert created


async def test_more_work_than_connections(state: RedisState) -> None:
    session, _ = await state.create_session("a", "t", None)
    await asyncio.gather(*(state.add_message("a", session.id, n, None) for n in range(200)))
    page = await state.list_messages("a", session.id, 0, 1000)
    assert page is not None
    assert [message.seq for message in page[0]] == list(range(1, 201))
