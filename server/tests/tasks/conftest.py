from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from .world import World


@pytest.fixture(params=["memory", "redis"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """In memory, and with one Redis for all."""
    url = request.getfixturevalue("valkey").url if request.param == "redis" else None
    made = World(url)
    yield made
    await made.close()
