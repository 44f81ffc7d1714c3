"""Many sockets: what is compared with what. No server; memory by script."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from moorage_chaos.bench import crowd
from moorage_chaos.bench.client import BenchError, SocketClient
from moorage_chaos.bench.crowd import Crowd


class Gone(SocketClient):
    def close(self) -> None:
        self.lost = True


@pytest.fixture
def connects(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []

    async def gather(port: int, token: str, count: int) -> list[SocketClient]:
        counts.append(count)
        return [Gone({}) for _ in range(count)]

    monkeypatch.setattr(crowd, "gather_crowd", gather)
    monkeypatch.setattr(crowd, "REST_S", 0.0)
    return counts


def remember(monkeypatch: pytest.MonkeyPatch, *kib: float) -> None:
    values: Iterator[float] = iter(kib)
    monkeypatch.setattr(crowd, "resident_kib", lambda pid: next(values))


async def test_memory_of_a_socket_is_what_the_crowd_adds(
    monkeypatch: pytest.MonkeyPatch, connects: list[int]
) -> None:
    remember(monkeypatch, 1000.0, 1250.0)
    assert await crowd.per_socket_kib(1, 1, "token", 10) == 25.0
    assert connects[1:] == [10]


@pytest.mark.parametrize(
    ("last", "growth"), [((1330.0, 1340.0, 1350.0), 30.0), ((1310.0, 900.0, 2000.0), 0.0)]
)
async def test_growth_is_counted_between_warm_waves(
    monkeypatch: pytest.MonkeyPatch, connects: list[int], last: tuple[float, ...], growth: float
) -> None:
    remember(monkeypatch, 900.0, 1250.0, 1300.0, 1310.0, 1320.0, *last)
    assert await crowd.growth_kib(1, 1, "token", Crowd(10, 80)) == growth
    assert connects == [10] * 8


def test_memory_of_a_process() -> None:
    assert crowd.resident_kib(os.getpid()) > 1000
    with pytest.raises(BenchError, match="is gone"):
        crowd.resident_kib(2**22 + 1)


async def test_a_disconnect_is_timed_in_a_full_manager() -> None:
    assert 0 < await crowd.disconnect_ms(60, 20) < 100
