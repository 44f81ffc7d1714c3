"""Commands and subscriptions over everything that happens to a Redis."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from moorage.errors import BackplaneReply, BackplaneUnavailable, BackplaneUnknown
from moorage.storage.backplane import Backplane

from ..valkey import Valkey

Until = Callable[..., Awaitable[None]]


@pytest_asyncio.fixture
async def backplane(valkey: Valkey) -> AsyncIterator[Backplane]:
    backplane = Backplane(valkey.url, name="test", timeout_ms=1500, stall_ms=100)
    assert await backplane.start()
    yield backplane
    await backplane.stop()


async def test_publish_and_subscribe(backplane: Backplane, until: Until) -> None:
    got: list[bytes] = []
    await backplane.subscribe("c", got.append)
    assert await backplane.publish("c", b"1") == 1
    assert await backplane.publish("nobody", b"1") == 0
    await until(lambda: got == [b"1"])
    more: list[bytes] = []
    await backplane.subscribe("c", more.append)  # confirmed already
    await backplane.publish("c", b"2")
    await until(lambda: more == [b"2"])
    backplane.unsubscribe("c", got.append)  # not the one that was given
    backplane.unsubscribe("c", more.append)
    backplane.unsubscribe("other", got.append)
    assert backplane.generation == 1


async def test_unsubscribe_and_subscribe_again(backplane: Backplane, until: Until) -> None:
    got: list[bytes] = []
    callback = got.append
    for _ in range(3):
        first = backplane.subscribe("c", callback)
        backplane.unsubscribe("c", callback)
        with pytest.raises(BackplaneUnavailable):
            await first
    await backplane.subscribe("c", callback)
    assert await backplane.publish("c", b"x") == 1
    await until(lambda: got == [b"x"])
    backplane.unsubscribe("c", callback)
    await backplane.subscribe("other", callback)
    assert await backplane.publish("c", b"y") == 0
    assert got == [b"x"]


async def test_a_callback_that_raises_ends_nothing(
    backplane: Backplane, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[bytes] = []

    def broken(payload: bytes) -> None:
        raise RuntimeError("broken")

    await backplane.subscribe("c", broken)
    await backplane.subscribe("c", got.append)
    await backplane.publish("c", b"1")
    await backplane.publish("c", b"2")
    await until(lambda: got == [b"1", b"2"])
    assert "broken" in caplog.text


async def test_storms_of_kills(backplane: Backplane, valkey: Valkey, until: Until) -> None:
    got: list[bytes] = []
    changes: list[str] = []
    backplane.on_up.append(lambda: changes.append("up"))
    backplane.on_down.append(lambda: changes.append("down"))
    await backplane.subscribe("c", got.append)
    before = len(os.listdir("/proc/self/fd"))
    for kind in ("pubsub", "normal") * 25:
        generation = backplane.generation
        assert valkey.kill_clients(kind) == 1
        await until(lambda: backplane.generation > generation)  # noqa: B023
    assert changes == ["down", "up"] * 50
    assert await backplane.publish("c", b"after") == 1
    await until(lambda: got == [b"after"])
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_subscribing_while_redis_is_away(backplane: Backplane, valkey: Valkey, until: Until) -> None:
    got: list[bytes] = []
    valkey.kill()
    await until(lambda: not backplane.available)
    future = backplane.subscribe("c", got.append)
    assert not future.done()
    valkey.start()
    await asyncio.wait_for(future, 5)
    await until(lambda: backplane.available)
    assert await backplane.publish("c", b"x") == 1
    await until(lambda: got == [b"x"])


async def test_a_freeze_is_noticed_though_nobody_asks(
    backplane: Backplane, valkey: Valkey, until: Until
) -> None:
    await backplane.subscribe("c", lambda payload: None)
    downs: list[bool] = []
    backplane.on_down.append(lambda: downs.append(backplane._subscriber.up))
    valkey.freeze()
    await until(lambda: not backplane.available)
    await until(lambda: not backplane._subscriber.up and not backplane._commands.up)
    assert len(downs) == 1
    valkey.thaw()
    await until(lambda: backplane.generation == 2)
    assert backplane.available


async def test_stalled_is_not_available(backplane: Backplane, valkey: Valkey, until: Until) -> None:
    assert backplane.available
    valkey.freeze()
    future = backplane.command("PING")
    await until(lambda: not backplane.available)
    assert backplane._commands.up
    valkey.thaw()
    assert await future == b"PONG"
    assert backplane.available
    assert backplane.generation == 1


async def test_a_refused_subscription(valkey: Valkey, until: Until) -> None:
    valkey.client.execute_command("ACL SETUSER me on >p ~* +@all resetchannels &ok")
    backplane = Backplane(valkey.url.replace("//", "//me:p@"), name="test")
    assert await backplane.start()
    got: list[bytes] = []
    with pytest.raises(BackplaneReply, match="NOPERM"):
        await backplane.subscribe("no", got.append)
    await backplane.subscribe("ok", got.append)
    assert await backplane.publish("ok", b"x") == 1
    # Taken away later: we would be deaf, so we are down, and back when it is given again.
    valkey.client.execute_command("ACL SETUSER me resetchannels")
    await until(lambda: not backplane._whole)
    generation = backplane.generation
    await asyncio.sleep(0.1)
    assert backplane.generation == generation
    valkey.client.execute_command("ACL SETUSER me &ok")
    await until(lambda: backplane._whole)
    assert await backplane.publish("ok", b"y") == 1
    await until(lambda: got == [b"x", b"y"])
    await backplane.stop()


async def test_not_up_at_the_start(valkey: Valkey, until: Until) -> None:
    valkey.kill()
    backplane = Backplane(valkey.url, name="test")
    assert not await backplane.start(0.05)
    assert backplane.generation == 0
    valkey.start()
    await until(lambda: backplane.generation == 1)
    await backplane.stop()


async def test_links_of_its_own(backplane: Backplane, valkey: Valkey) -> None:
    link = backplane.open_link("reader")
    assert await link.wait_up(5)
    blocked = link.command("BLPOP", "list", 0)
    assert await backplane.command("PING") == b"PONG"  # not held up
    await backplane.command("RPUSH", "list", "x")
    assert await blocked == [b"list", b"x"]
    assert valkey.client_names() == ["test:commands", "test:reader", "test:subscriber"]


async def test_stop_ends_what_waits(valkey: Valkey, until: Until) -> None:
    backplane = Backplane(valkey.url, name="test")
    assert await backplane.start()
    link = backplane.open_link("reader")
    assert await link.wait_up(5)
    valkey.freeze()
    ends: list[Any] = [
        backplane.subscribe("c", lambda payload: None),
        backplane.command("PING"),
        link.command("PING"),
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await backplane.stop()
    results = await asyncio.gather(*ends, return_exceptions=True)
    assert [type(result) for result in results] == [BackplaneUnavailable, BackplaneUnknown, BackplaneUnknown]
    valkey.thaw()
    await until(lambda: valkey.client_names() == [])
