from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from moorage.events.log import EventLog

from .watching import running


@pytest.fixture(params=["memory", "redis"])
async def log(request: pytest.FixtureRequest) -> AsyncIterator[EventLog]:
    """One log, over both stores."""
    url = None if request.param == "memory" else request.getfixturevalue("valkey").url
    async with running(url) as made:
        yield made


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends wait for Redis longer than any machine is busy, so that none goes out without an id."""
    monkeypatch.setattr("moorage.events.writer.GRACE_S", 20.0)


@pytest.fixture
async def pair(valkey: Any) -> AsyncIterator[tuple[EventLog, EventLog]]:
    """Two replicas over one Redis."""
    async with running(valkey.url, "a") as a, running(valkey.url, "b") as b:
        yield a, b
