"""Readers: what the product's stream yields becomes notes."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

from moorage.client import EventStream, Refused
from moorage.client.event_frames import Event, Gap, Turn
from moorage.client.event_ledger import Rebuilt, Statistics
from moorage_chaos.browser import PageReader
from moorage_chaos.clients import Clients
from moorage_chaos.drivers.base import Driver
from moorage_chaos.history import History
from moorage_chaos.readers import Reader


class Scripted:
    """A stream that yields what it is given, then raises, or ends."""

    def __init__(self, *items: Any, cause: Exception | None = None) -> None:
        self.items = list(items)
        self.cause = cause
        self.state = "live"
        self.statistics = Statistics(resumes=2, overlaps=1)

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def ready(self, timeout: float) -> None: ...

    def __aiter__(self) -> Scripted:
        return self

    async def __anext__(self) -> Any:
        if self.items:
            return self.items.pop(0)
        if self.cause is not None:
            raise self.cause
        raise StopAsyncIteration


def clients() -> Clients:
    return Clients(cast(Driver, SimpleNamespace()), History(), random.Random(1))


def item(n: int, *, replayed: bool = False) -> Event:
    return Event(f"{n}-0", n, "item", {"mark": f"m{n}"}, replayed=replayed)


async def play(stream: Scripted) -> History:
    owner = clients()
    made = Reader(owner, "r", "s", cast(EventStream, stream), "replica-1")
    await made.start()
    async with asyncio.timeout(5):
        while made._task is not None and not made._task.done():
            await asyncio.sleep(0)
    await made.close()
    await owner.close()
    return owner.history


async def test_events_are_noted_with_their_marks_and_where_they_came_from() -> None:
    history = await play(Scripted(item(1), item(2, replayed=True)))
    [note] = history.notes("reader")
    assert note.value == {"reader": "r", "session": "s", "kind": "python", "at": "replica-1"}
    found = [(n.value["id"], n.value["mark"], n.value["from"]) for n in history.notes("event")]
    assert found == [("1-0", "m1", "live"), ("2-0", "m2", "replay")]
    [end] = history.notes("resumed")
    assert (end.value["resumes"], end.value["overlaps"]) == (2, 1)


async def test_a_gap_is_noted_before_what_the_turn_still_has() -> None:
    turn = Turn("t", "running", None, None, None, None, (item(7),), None, True)
    history = await play(Scripted(Rebuilt(turn, Gap("trimmed", "7-0", 6), (item(7),), 6), item(8)))
    assert [e.op for e in history.events if e.op in ("gap", "event")] == ["gap", "event", "event"]
    [gap] = history.notes("gap")
    assert (gap.value["reason"], gap.value["missed"], gap.value["turn"]) == ("trimmed", 6, "running")
    assert [n.value["from"] for n in history.notes("event")] == ["turn", "live"]


async def test_a_turn_at_the_start_is_no_gap() -> None:
    turn = Turn("t", "done", None, None, None, None, (item(1),), None, False)
    history = await play(Scripted(Rebuilt(turn, None, (item(1),), 0)))
    assert not history.notes("gap")
    assert len(history.notes("event")) == 1


async def test_a_reader_that_gives_up_says_so() -> None:
    history = await play(Scripted(cause=Refused("Session not found")))
    [note] = history.notes("reader-failed")
    assert "Session not found" in note.value["error"]


async def test_until_counts_what_was_rendered() -> None:
    owner = clients()
    made = Reader(owner, "r", "s", cast(EventStream, Scripted()), "")
    waiting = asyncio.create_task(made.until("item", 5.0, 2))
    for n in (1, 2):
        made.rendered(f"{n}-0", n, "item", {}, None, "live")
    assert await waiting
    assert not await made.until("task_result", 0.01)
    await owner.close()


async def test_a_page_tells_the_same() -> None:
    owner = clients()
    made = PageReader(owner, "p", "s", None)
    event = {"id": "1-0", "seq": 1, "type": "item", "data": {"mark": "m"}, "key": None, "replayed": True}
    made._told("state", {"state": "live", "cause": None})
    made._told("event", event)
    gap = {"reason": "epoch", "oldest": None}
    made._told("rebuilt", {"status": "done", "gap": gap, "fresh": [{**event, "id": "2-0"}]})
    assert made.live
    made._told("state", {"state": "failed", "cause": "Invalid token"})
    assert [n.value["from"] for n in owner.history.notes("event")] == ["replay", "turn"]
    assert owner.history.notes("gap")[0].value["reason"] == "epoch"
    assert owner.history.notes("reader-failed")[0].value["error"] == "Invalid token"
    await owner.close()
