from __future__ import annotations

import asyncio
import json

import pytest

from moorage_chaos import pressure
from moorage_chaos.children import child

from .conftest import Stub


async def test_idle_clients_stay_and_come_back(stub: Stub) -> None:
    async with child("moorage_chaos.idle") as process, asyncio.timeout(30):
        assert process.stdin is not None
        assert process.stdout is not None
        config = {"url": stub.url, "tokens": ["a", "b"], "count": 5}
        process.stdin.write(json.dumps(config).encode() + b"\n")
        assert json.loads(await process.stdout.readline()) == {"up": 5}
        await stub.io.disconnect(stub.sids[0])
        while len(stub.sids) < 6:
            await asyncio.sleep(0.02)
        process.stdin.write(b"report\n")
        report = json.loads(await process.stdout.readline())
    assert len(report["downs"]) == 1
    assert len(report["connects"]) in (5, 6)
    assert process.returncode == 0


async def test_a_child_ends_with_its_block() -> None:
    async with child("moorage_chaos.idle") as process:
        pass
    assert process.returncode is not None


def test_pressure_speaks_the_adapters_format() -> None:
    addressed, other = pressure.entry(10, "user:a"), pressure.entry(11, "user:a")
    assert (addressed["uid"], addressed["nsp"], addressed["type"]) == ("emitter", "/", "3")
    data = json.loads(addressed["data"])
    assert data["packet"] == {"type": 2, "data": ["pressure", {"n": 10, "pad": "x" * 64}]}
    assert data["opts"] == {"rooms": ["user:a"], "except": [], "flags": {}}
    assert json.loads(other["data"])["opts"]["rooms"] == ["moorage-chaos:nobody"]


class Pipeline:
    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.added = 0

    def xadd(self, stream: str, fields: dict[str, str]) -> None:
        self.added += 1

    def xlen(self, stream: str) -> None:
        pass

    def execute(self) -> list[int]:
        self.redis.length += self.added
        return [self.redis.length]


class Redis:
    length = 0

    def pipeline(self, transaction: bool) -> Pipeline:
        return Pipeline(self)


class Clock:
    """Stands in for ``time``: each sleep takes longer than it was asked for."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 1.5 * seconds


def test_pressure_never_runs_ahead_of_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pressure, "time", Clock())
    redis = Redis()
    figures = pressure.press(redis, "s", 1000, 0.1, "room")
    assert 0 < figures["appended"] <= 1000 * figures["seconds"]
    assert figures["longest"] == redis.length == figures["appended"]
