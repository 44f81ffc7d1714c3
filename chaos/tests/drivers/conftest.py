"""A local system of stand-in replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from moorage_chaos.drivers.base import Setup
from moorage_chaos.drivers.local import LocalConfig, LocalDriver
from moorage_chaos.faults.journal import FileJournal

Make = Callable[..., Awaitable[LocalDriver]]
HERE = Path(__file__).parent


@pytest.fixture
async def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Make]:
    """``await make(Setup(...), redis_url=...)``: a started driver, stopped at the end of the test."""
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    journals = tmp_path / "journals"
    journals.mkdir()
    journal = FileJournal(journals)
    drivers: list[LocalDriver] = []

    async def start(setup: Setup | None = None, **config: Any) -> LocalDriver:
        stand_in = {"entry": "stand_in:main", "worker_entry": "stand_in:worker", "preload": ("stand_in",)}
        config = {**stand_in, **config}
        driver = LocalDriver(LocalConfig(tmp_path / "logs", journal, **config))
        drivers.append(driver)
        await driver.start(setup or Setup(replicas=2))
        return driver

    yield start
    for driver in drivers:
        await driver.stop()
    journal.close()
    assert not list(journals.iterdir()), "something was left to undo"
