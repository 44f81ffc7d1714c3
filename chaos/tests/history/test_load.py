from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.load import at, every, jittered, play


def test_every() -> None:
    assert every(100, 300) == [0.0, 0.1, 0.2]
    assert every(100, 301) == [0.0, 0.1, 0.2, 0.3]
    assert every(100, 300, first_ms=250) == [0.25]
    assert every(100, 0) == []
    with pytest.raises(ValueError, match="positive"):
        every(0, 10)


@given(st.lists(st.integers(0, 10_000), max_size=20), st.integers(0, 500), st.integers(0, 2**16))
def test_jitter_moves_each_later_by_at_most_the_spread(ms: list[int], spread: int, seed: int) -> None:
    plain = at(*ms)
    moved = jittered(plain, spread, random.Random(seed))
    assert moved == sorted(moved)
    assert all(a - 1e-9 <= b <= a + spread / 1000 + 1e-9 for a, b in zip(plain, moved, strict=True))


async def test_a_slow_operation_does_not_hold_back_the_next() -> None:
    release = asyncio.Event()
    begun = []

    async def start(i: int) -> None:
        begun.append(i)
        if i == 2:
            release.set()
        await release.wait()

    async with asyncio.timeout(5):
        await play(at(0, 1, 2), start)
    assert begun == [0, 1, 2]


async def test_until_ends_the_play() -> None:
    begun = []

    async def start(i: int) -> None:
        begun.append(i)

    await play(every(1, 1000), start, until=lambda: len(begun) >= 3)
    assert begun == [0, 1, 2]


async def test_what_start_raises_ends_the_play() -> None:
    async def start(i: int) -> None:
        raise RuntimeError("broken row")

    with pytest.raises(ExceptionGroup):
        await play(every(1, 10), start)
