"""Questions of the bench: whole answers only, and a dead replica's part left out."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from moorage_chaos.bench import asking
from moorage_chaos.bench.asking import Asker
from moorage_chaos.bench.client import BenchError
from moorage_chaos.bench.processes import Process


class Manager:
    """Answers ``answer``, after the process ``until_gone`` is gone if there is one."""

    def __init__(self, answer: Any, until_gone: Process | None = None) -> None:
        self.requests = self
        self.answer, self.until_gone = answer, until_gone

    async def fetch_sockets(self, rooms: list[str], *, timeout_ms: int) -> Any:
        while self.until_gone is not None and self.until_gone._child.poll() is None:
            await asyncio.sleep(0.005)
        return self.answer


async def test_whole_answers_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()  # a second passes with each look
    monkeypatch.setattr(asking, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    assert await Asker(Manager(([1, 2], True)), "room", 2).run(5) == [1, 1]  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [([1], True), ([1, 2], False)])
async def test_an_answer_that_is_not_whole_ends_the_run(answer: Any) -> None:
    with pytest.raises(BenchError, match="not 2 sockets of everybody"):
        await Asker(Manager(answer), "room", 2).run(5)  # type: ignore[arg-type]


@pytest.fixture
def victim(tmp_path: Path) -> Process:
    return Process("victim", [sys.executable, "-c", "input()"], os.environ, tmp_path / "log", None)


async def test_a_dead_replica_is_left_out(victim: Process) -> None:
    asker = Asker(Manager(([1], False), victim), "room", 2)  # type: ignore[arg-type]
    assert 0 < await asker.ask_while_dying(victim) < 10


async def test_an_answer_that_says_it_is_whole_is_wrong(victim: Process) -> None:
    asker = Asker(Manager(([1, 2], True), victim), "room", 2)  # type: ignore[arg-type]
    with pytest.raises(BenchError, match="was not left out"):
        await asker.ask_while_dying(victim)


async def test_a_replica_that_stands_still_cannot_have_answered(victim: Process) -> None:
    try:
        with pytest.raises(BenchError, match="stands still"):
            await Asker(Manager(([1, 2], True)), "room", 2).ask_while_dying(victim)  # type: ignore[arg-type]
    finally:
        victim.stop(gently=False)
