"""Two replicas, `a` and `b`, behind one address that leads to `a` until a test says otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest

from .replicas import Cluster, Front, Replica


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    async with contextlib.AsyncExitStack() as stack:
        for name in "ab":
            await stack.enter_async_context(Replica(cluster, name).serving())
        yield cluster


@pytest.fixture
async def front(cluster: Cluster) -> AsyncIterator[Front]:
    front = Front(cluster)
    front.default = "a"
    async with front.serving():
        yield front
