"""Two replicas, `a` and `b`, behind one address that leads to `a` until a test says otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from .replicas import Cluster, Front, Replica


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    replicas = [Replica(cluster, name) for name in "ab"]
    for replica in replicas:
        await replica.start()
    yield cluster
    await asyncio.gather(*(replica.stop() for replica in replicas))


@pytest.fixture
async def front(cluster: Cluster) -> AsyncIterator[Front]:
    front = Front(cluster.replicas)
    front.default = "a"
    async with front.serving():
        yield front
