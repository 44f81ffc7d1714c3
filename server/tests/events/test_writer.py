"""Appending over a link that fails in every way: each event is in the log once, or in a hole that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.errors import BackplaneReply, BackplaneUnavailable, BackplaneUnknown
from moorage.events import writer as writing
from moorage.events.breaker import BreakerState
from moorage.events.frames import Event, EventId, make_event
from moorage.events.store import Span, Stored
from moorage.events.writer import Writer

from ..valkey import Valkey
from .watching import running

OUTCOMES = ("ok", "ok", "ok", "late", "lost", "done and lost", "unavailable", "refused", "busy")


class Link:
    """A store whose appends fail as drawn. One that is lost takes with it all that are under way behind it."""

    def __init__(self, outcomes: list[str]) -> None:
        self.on_up: Callable[[], None] = lambda: None
        self.on_dropped: Callable[[str], None] = lambda reason: None
        self.available = True
        self.log: list[Event] = []
        self._outcomes = outcomes
        self._number = self._token = 0
        self._life = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    async def append(
        self, session_id: str, event: Event, number: int, *, repeat_after: EventId | None = None
    ) -> Stored:
        outcome = self._outcomes.pop() if self._outcomes else "ok"
        if outcome == "unavailable" or not self.available:
            raise BackplaneUnavailable
        if outcome == "busy" or (outcome == "refused" and number > self._token):
            raise BackplaneReply("BUSY" if outcome == "busy" else "OOM")
        life = self._life
        stored = self._execute(event, number, repeat_after) if outcome != "lost" else None
        if outcome in ("lost", "done and lost"):
            self._life += 1
            self.available = False
            asyncio.get_running_loop().call_later(0.002, self._repair)
            await asyncio.sleep(0)
            raise BackplaneUnknown
        for _ in range(3 if outcome == "late" else 1):
            await asyncio.sleep(0)
        if life != self._life:
            raise BackplaneUnknown
        assert stored is not None
        return stored

    def _repair(self) -> None:
        self.available = True

    def _execute(self, event: Event, number: int, repeat_after: EventId | None) -> Stored:
        if number <= self._token:
            assert repeat_after is not None
            place = next(n for n, known in enumerate(self.log) if known is event) + 1
            return Stored("e", EventId(place, 0), place)
        self._token = number
        self.log.append(event)
        return Stored("e", EventId(len(self.log), 0), len(self.log))

    async def read(self, session_id: str, after: EventId | None, count: int) -> Span:
        raise NotImplementedError

    async def delete(self, session_id: str) -> None:
        raise NotImplementedError

    def tell(self, session_id: str, event: bytes) -> None:
        raise NotImplementedError


async def play(outcomes: list[str], waves: list[int]) -> None:
    link = Link(outcomes)
    delivered: list[Event] = []
    without: list[Event] = []

    async def reachable() -> None:
        while not link.available:
            await asyncio.sleep(0.001)

    writer = Writer(
        link,
        lambda session_id, stored, event: delivered.append(event),
        lambda session_id, event: without.append(event),
        reachable,
        lambda result: None,
    )
    told: dict[int, Stored | None] = {}

    async def report(number: int) -> None:
        told[number] = await writer.write("s", make_event("t", number, None, 1, 100))

    number = 0
    async with asyncio.timeout(20):
        for size in waves:
            await asyncio.gather(*(report(number + n) for n in range(size)))
            number += size
        link._outcomes.clear()
        while writer._lanes or writer._holes or not writer.breaker.closed:
            writer.probe()
            if writer.breaker.closed and not writer._lanes:
                await report(number)  # a single failure is told with the next event
                number += 1
            await asyncio.sleep(0.001)
    reported = [orjson.loads(event.data) for event in link.log if event.type == "t"]
    left_out = [orjson.loads(event.data) for event in without]
    assert len(set(reported)) == len(reported), "an event is in the log twice"
    assert sorted(reported + left_out) == list(range(number)), "an event is nowhere, or in both"
    holes = [orjson.loads(event.data)["count"] for event in link.log if event.type == "unlogged"]
    assert sum(holes) == len(left_out)
    assert sorted(delivered, key=id) == sorted(link.log, key=id)
    for n, stored in told.items():
        if stored is not None:
            assert stored.id is not None
            assert orjson.loads(link.log[stored.seq - 1].data) == n
    await writer.stop()


@settings(max_examples=60)
@given(st.lists(st.sampled_from(OUTCOMES), max_size=30), st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_once_in_the_log_or_told_to_be_missing(outcomes: list[str], waves: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "RETRY_S", 0.001)
        patch.setattr(writing, "GRACE_S", 0.05)
        asyncio.run(play(outcomes, waves))


async def test_a_hole_is_told_before_anything_newer() -> None:
    link = Link(["ok", "refused"])
    writer = Writer(link, *_nothing())
    await writer.write("s", make_event("t", 1, None, 5, 100))
    await asyncio.gather(*(writer.write("s", make_event("t", n, None, 6, 100)) for n in (2, 3)))
    assert [event.type for event in link.log] == ["unlogged", "t", "t"]
    assert orjson.loads(link.log[0].data) == {"count": 1, "from": 5, "to": 5}
    assert writer.breaker.state is BreakerState.CLOSED


async def test_what_follows_a_hole_that_cannot_be_told_is_part_of_it() -> None:
    link = Link(["ok", "ok", "ok", "refused", "refused"])
    writer = Writer(link, *_nothing())
    await writer.write("s", make_event("t", 1, None, 5, 100))
    await asyncio.gather(*(writer.write("s", make_event("t", n, None, 6, 100)) for n in (2, 3)))
    assert link.log == []
    await writer.write("s", make_event("t", 4, None, 7, 100))
    assert [orjson.loads(event.data) for event in link.log] == [{"count": 3, "from": 5, "to": 6}, 4]


async def test_what_comes_late_on_a_connection_that_was_given_up_is_not_appended_again(
    valkey: Valkey,
) -> None:
    async with running(valkey.url) as log:
        store = log._store
        first, second = (make_event("t", n, None, 1, 100) for n in (1, 2))
        await store.append("s", first, 7, repeat_after=EventId(0, 0))
        await store.append("s", second, 9)
        assert (await store.append("s", first, 7)).id is None
        repeated = await store.append("s", first, 7, repeat_after=EventId(0, 0))
        assert repeated.seq == 1
        assert [frame["event"]["data"] for frame in (await log.page("s", "0-0", 9)).events] == [1, 2]


async def test_numbers_of_many_processes_are_forgotten_in_the_end(valkey: Valkey) -> None:
    for n in range(50):
        async with running(valkey.url, f"r{n}") as log:
            await log.append("s", "t", n)
    assert valkey.client.hlen("moorage:events:{s}:meta") < 45
    assert len(valkey.client.xrange("moorage:events:{s}")) == 50  # type: ignore[arg-type]


def _nothing() -> tuple[Any, ...]:
    async def reachable() -> None:
        pass

    return (lambda *_: None, lambda *_: None, reachable, lambda _: None)
