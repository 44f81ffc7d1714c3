"""What a replica says of itself, over a backplane that is told by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import ormsgpack
import pytest_asyncio

from moorage.cluster.membership import Membership
from moorage.settings import load

Until = Callable[..., Awaitable[None]]


class Backplane:
    """As much of it as membership uses; publishes are answered by the test."""

    available = True
    generation = 1

    def __init__(self) -> None:
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[], None]] = []
        self.beats: list[asyncio.Future[int]] = []

    def subscribe(self, channel: str, callback: Callable[[bytes], None]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    def publish(self, channel: str, payload: bytes) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if ormsgpack.unpackb(payload)[2] == "beat":
            self.beats.append(future)
        else:
            future.set_result(1)
        return future


@pytest_asyncio.fixture
async def beating() -> AsyncIterator[Backplane]:
    backplane = Backplane()
    settings = load(secret_key="k" * 40, redis_url="redis://nowhere", beat_interval_ms=20)
    membership: Any = Membership(settings, backplane)  # type: ignore[arg-type]
    membership.begin()
    yield backplane
    await membership.stop()


async def test_who_does_not_hear_does_not_claim_to_live(beating: Backplane, until: Until) -> None:
    await until(lambda: beating.beats)
    await asyncio.sleep(0.2)  # ten beats
    assert len(beating.beats) == 1
    beating.beats[0].set_result(3)
    await until(lambda: len(beating.beats) == 2)
    beating.beats[1].set_exception(OSError("the link was lost"))
    beating.beats[1].exception()
    await until(lambda: len(beating.beats) == 3)
    beating.beats[2].set_result(3)
