"""What the pool adds to redis-py: bounds that hold, cancellations that arrive."""

from __future__ import annotations

import asyncio

import pytest

from moorage.errors import BackplaneReply, BackplaneUnknown
from moorage.storage.pool import RedisPool

from ..valkey import Valkey


async def test_a_cancellation_is_never_lost(valkey: Valkey) -> None:
    pool = RedisPool(valkey.url, name="test", ca_file=None, timeout_ms=2000)
    went_on = 0

    async def commands() -> None:
        nonlocal went_on
        while True:
            await pool.command("PING")
            current = asyncio.current_task()
            went_on += current is not None and current.cancelling() > 0

    for turns in range(200):
        working = asyncio.create_task(commands())
        for _ in range(turns % 40):
            await asyncio.sleep(0)
        working.cancel()
        await asyncio.wait({working}, timeout=5)
        assert working.done()
    assert went_on == 0
    await pool.stop()


async def test_a_blocking_command_may_take_its_time_and_no_longer(valkey: Valkey) -> None:
    pool = RedisPool(valkey.url, name="test", ca_file=None, timeout_ms=1000)
    assert await pool.command("BLPOP", "nothing", 1.1, blocks_s=1.1) is None
    with pytest.raises(BackplaneUnknown):
        await pool.command("BLPOP", "nothing", 20)
    assert await pool.command("PING") == b"PONG"
    with pytest.raises(BackplaneReply, match="unknown command"):
        await pool.command("NO SUCH COMMAND")
    await pool.stop()
