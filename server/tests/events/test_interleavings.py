"""Reading while others append, in any interleaving: nothing is lost, and ids rise where they must."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from moorage.events import replay
from moorage.events.frames import EventId, Resume
from moorage.events.log import EventLog
from moorage.events.store import Span
from moorage.settings import load

from .watching import KEY, Watcher

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("join"), st.booleans()),
        st.tuples(st.just("leave"), st.integers(0, 5)),
        st.tuples(st.just("turns"), st.integers(0, 6)),
    ),
    max_size=25,
)
"""Events to append; a reader (waiting or not) that resumes from a drawn place; one that leaves; turns of the loop."""


class Slow:
    """Reads that take as many turns of the loop as drawn, before and after."""

    def __init__(self, log: EventLog, delays: list[int]) -> None:
        self._read, self._delays = log._store.read, delays

    async def __call__(self, session_id: str, after: EventId | None, count: int) -> Span:
        for n in range(self._delays.pop() if self._delays else 0):
            await asyncio.sleep(0)
            if n == 2:
                span = await self._read(session_id, after, count)
                break
        else:
            span = await self._read(session_id, after, count)
        for _ in range(self._delays.pop() if self._delays else 0):
            await asyncio.sleep(0)
        return span


async def play(steps: list[Any], delays: list[int], places: list[int]) -> None:
    log = EventLog(None, load(secret_key=KEY, event_log_maxlen=10_000))
    slow = Slow(log, delays)
    log.live._read = slow
    log._replay._reads._read = slow
    ids = ["0-0"]
    epoch = (await log.head("s")).epoch
    readers: list[tuple[Watcher, int, asyncio.Task[None]]] = []
    gone: list[tuple[Watcher, int, asyncio.Task[None]]] = []
    for step, value in [*steps, ("append", 1)]:
        if step == "append":
            for _ in range(value):
                ids.append(str((await log.append("s", "t", len(ids))).id))
        elif step == "join":
            at = (places.pop() if places else 0) % len(ids)
            reader = Watcher("s", waits=value)
            resume = Resume(ids[at], at, epoch)
            readers.append((reader, at, asyncio.create_task(log.serve(reader, resume))))
        elif step == "leave" and readers:
            gone.append(readers.pop(value % len(readers)))
            gone[-1][0].end(None)
        else:
            for _ in range(value):
                await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await asyncio.gather(*(task for _, _, task in readers + gone))
    last = len(ids) - 1
    for reader, at, _ in readers:
        seqs = [seq or 0 for seq in reader.seqs]
        assert set(seqs) == set(range(at + 1, last + 1))
        if reader.waits:
            assert seqs == list(range(at + 1, last + 1))
        assert [frame["type"] for frame in reader.frames if frame["type"] != "event"] == [
            "ws_ready",
            "replay_done",
        ]
        reader.end(None)
    assert not log.live.groups
    await log.stop()


@example(
    # The second comes while the log is looked at for the first, and has already what that look does not know.
    [("join", False), ("join", False), ("turns", 2), ("append", 1), ("join", False)],
    [2, 0],
    [1, 0, 0],
)
@settings(max_examples=80)
@given(STEPS, st.lists(st.integers(0, 8), max_size=30), st.lists(st.integers(0, 60), max_size=10))
def test_nothing_is_lost_in_any_interleaving(steps: list[Any], delays: list[int], places: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "GATHER_S", 0)
        patch.setattr(replay, "READ_COUNT", 3)
        patch.setattr(replay, "RETRY_S", 0)
        asyncio.run(play(steps, delays, places))
