"""The link on uvloop, which runs timers before it reads and whose transports are classes of their own."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from moorage.errors import BackplaneUnknown
from moorage.storage.backplane import Backplane
from moorage.storage.link import Link

from ..valkey import Valkey


def test_link(valkey: Valkey) -> None:
    async def scenario() -> None:
        link = Link(valkey.url, name="test", timeout_ms=1000)
        link.start()
        assert await link.wait_up(5)
        assert await asyncio.gather(*(link.command("INCR", "n") for _ in range(1000))) == list(range(1, 1001))

        future = link.command("PING")
        await asyncio.sleep(0)
        time.sleep(1.3)  # noqa: ASYNC251  (a stopped process: its timers are due before Redis is read)
        assert await future == b"PONG"

        valkey.freeze()
        with pytest.raises(BackplaneUnknown):
            await link.command("PING")
        valkey.thaw()
        assert await link.wait_up(5)
        assert await link.command("PING") == b"PONG"
        await link.stop()

    uvloop.run(scenario())


def test_backplane(valkey: Valkey) -> None:
    async def scenario() -> None:
        backplane = Backplane(valkey.url, name="test", timeout_ms=1000)
        assert await backplane.start()
        for _ in range(3):
            generation = backplane.generation
            valkey.kill_clients("normal")
            async with asyncio.timeout(5):
                while backplane.generation == generation:
                    await asyncio.sleep(0.001)
            got = asyncio.Event()
            await backplane.subscribe("c", lambda payload, got=got: got.set())
            assert await backplane.publish("c", b"x") == 1
            await asyncio.wait_for(got.wait(), 5)
        await backplane.stop()

    uvloop.run(scenario())
