"""Profiles: what the sampler books, how files are merged and shown."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import orjson
import pytest

from moorage_chaos.bench.profile import merge, note, text
from moorage_chaos.bench.sampler import Sampler


def inner(sampler: Sampler, spent: float, depth: int = 0) -> None:
    if depth < 3:
        inner(sampler, spent, depth + 1)
    else:
        sampler.book(sys._getframe(), spent)


def only(of: dict[str, float], end: str) -> float:
    (found,) = [value for name, value in of.items() if name.endswith(end)]
    return found


def test_time_is_booked_once_on_each_function_of_a_stack(tmp_path: Path) -> None:
    sampler = Sampler()
    inner(sampler, 0.25)
    inner(sampler, 0.5)
    sampler.write(tmp_path / "p.json")
    booked = orjson.loads((tmp_path / "p.json").read_bytes())
    assert booked["total"] == 0.75
    assert only(booked["self"], " inner") == 0.75
    assert only(booked["under"], " inner") == 0.75
    assert only(booked["under"], " test_time_is_booked_once_on_each_function_of_a_stack") == 0.75
    assert len(booked["self"]) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["p.json"]


def test_a_new_start_forgets(tmp_path: Path) -> None:
    sampler = Sampler()
    inner(sampler, 0.25)
    before = signal.signal(signal.SIGPROF, signal.SIG_IGN)
    try:
        sampler.start()
        sampler.stop()
    finally:
        signal.signal(signal.SIGPROF, before)
    sampler.write(tmp_path / "p.json")
    assert orjson.loads((tmp_path / "p.json").read_bytes()) == {"total": 0.0, "self": {}, "under": {}}


def busy(sampler: Sampler) -> None:
    while sampler.total < 0.02:
        sum(range(1000))


def test_work_inside_a_loop_is_booked_on_its_function() -> None:
    sampler = Sampler()
    before = signal.getsignal(signal.SIGPROF)
    sampler.install()

    async def work() -> None:
        sampler.start()  # here, so that making and closing the loop are not sampled
        busy(sampler)
        sampler.stop()

    try:
        with asyncio.Runner() as runner:
            runner.run(work())
    finally:
        sampler.stop()
        signal.signal(signal.SIGPROF, before)
    assert max(sampler.own, key=sampler.own.__getitem__).endswith(" busy")
    assert only(sampler.under, ".work") > 0
    assert not any("runners.py" in name for name in sampler.under)


def test_profiles_of_replicas_add_up_and_are_ordered() -> None:
    merged = merge(
        [
            {"total": 1.0, "self": {"a": 0.25, "b": 0.75}, "under": {"main": 1.0}},
            {"total": 1.0, "self": {"a": 0.5, "c": 0.5}, "under": {"main": 1.0}},
        ]
    )
    assert merged.total == 2.0
    assert merged.own == pytest.approx({"a": 0.75, "b": 0.75, "c": 0.5})
    page = text(merged, "title").splitlines()
    assert page[0] == "title"
    assert page[4].split() == ["37.5%", "0.750", "s", "a"]
    assert page[6].endswith("c")
    assert "100.0%     2.000 s  main" in page[9]
    assert note(merged) == "38% a; 38% b; 25% c"


def test_an_empty_profile_says_nothing() -> None:
    empty = merge([{"total": 0.0, "self": {}, "under": {}}])
    assert note(empty) == ""
    assert "0.000 s" in text(empty, "t")
