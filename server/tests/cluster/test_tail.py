"""What is read of the stream for clients that come back: once for all of them, in pages, bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from moorage.cluster import tail, wire
from moorage.cluster.tail import PAGE_BYTES, PAGE_MAX, PageSize, Tail
from moorage.storage.backplane import Backplane

from ..valkey import Valkey


@pytest_asyncio.fixture
async def backplane(valkey: Valkey) -> AsyncIterator[Backplane]:
    backplane = Backplane(valkey.url, name="tail")
    assert await backplane.start()
    yield backplane
    await backplane.stop()


Append = Callable[..., Awaitable[bytes]]


@pytest.fixture
def append(backplane: Backplane) -> Append:
    async def append(
        n: int, *rooms: str, but: tuple[str, ...] = (), flags: Any = None, nsp: str = "/"
    ) -> bytes:
        data = wire.broadcast("e", [n], wire.opts(rooms, but, flags))
        fields = wire.encode_entry("u", nsp, wire.BROADCAST, data)
        return bytes(await backplane.command("XADD", "s", "*", *fields))

    return append


async def missed(of: Tail, mine: set[str], after: bytes, until: bytes, nsp: str = "/") -> list[int]:
    found = []
    async for part in of.missed(nsp, mine, after, until):
        for _, body in part:
            data = body.event()
            assert isinstance(data, list)
            found.append(data[1])
    return found


async def test_who_gets_what(backplane: Backplane, append: Append) -> None:
    start = await append(0)
    await append(1)
    await append(2, "a")
    await append(3, "b")
    await append(4, "a", "b", "a")
    await append(5, "a", but=("me",))
    await append(6, but=("b",))
    await append(7, flags={"volatile": True})
    await append(8, flags={wire.FLEETING: True})
    await append(9, "a", nsp="/other")
    await backplane.command("XADD", "s", "*", "junk", "x")
    end = await append(10, "me")
    of = Tail(backplane, "s")
    assert await missed(of, {"me", "a"}, start, end) == [1, 2, 4, 6, 10]
    assert await missed(of, {"you", "b"}, start, end) == [1, 3, 4]
    assert await missed(of, {"x", "a"}, start, end, "/other") == [9]
    assert await missed(of, {"me"}, end, end) == []
    of.drop()


async def test_read_once_forwards_and_backwards(
    backplane: Backplane, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [await append(n) for n in range(300)]
    read: list[Any] = []
    command = backplane.command

    def counted(*words: Any) -> Any:
        if words[0] == "XRANGE":
            read.append(words)
        return command(*words)

    monkeypatch.setattr(backplane, "command", counted)
    of = Tail(backplane, "s")
    everybody = [
        missed(of, {"me"}, ids[100], ids[199]),
        missed(of, {"me"}, ids[0], ids[199]),
        missed(of, {"me"}, ids[150], ids[299]),
    ]
    assert await asyncio.gather(*everybody) == [[*range(101, 200)], [*range(1, 200)], [*range(151, 300)]]
    once = len(read)
    assert await missed(of, {"me"}, ids[50], ids[299]) == [*range(51, 300)]
    assert len(read) == once
    of.drop()
    await missed(of, {"me"}, ids[298], ids[299])
    assert len(read) == once + 1
    of.drop()


async def test_what_does_not_fit_is_read_again(
    backplane: Backplane, append: Append, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "KEPT_MAX_BYTES", 20_000)
    ids = [await append(n) for n in range(400)]
    of = Tail(backplane, "s")
    for _ in range(2):
        assert await missed(of, {"me"}, ids[0], ids[399]) == [*range(1, 400)]
    assert sum(block.size for block in of._blocks) < 100_000
    of.drop()


@given(st.lists(st.integers(0, 2**40), max_size=30))
def test_pages_stay_between_one_and_the_most(sizes: list[int]) -> None:
    asked = PageSize()
    for size in sizes:
        asked.got(size)
        assert 1 <= asked.count <= PAGE_MAX


@given(st.integers(1, PAGE_BYTES * 4))
def test_pages_come_to_the_wanted_size(entry: int) -> None:
    asked = PageSize()
    for _ in range(10):
        asked.got(asked.count * entry)
    assert asked.count == 1 or asked.count * entry <= PAGE_BYTES
