"""One behaviour over memory and Redis: append, read, resume, trim, expire, delete."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from moorage.errors import EventTooLarge, InvalidEvent
from moorage.events.frames import EventId, Resume
from moorage.events.log import EventLog, SessionDeleted
from moorage.events.store import PAGE_MAX_BYTES

from ..valkey import Valkey
from .watching import running, watch

Until = Callable[..., Awaitable[None]]


async def fill(log: EventLog, count: int, session_id: str = "s") -> list[str]:
    return [str((await log.append(session_id, "t", n)).id) for n in range(count)]


async def test_numbers_are_dense_and_ids_rise(log: EventLog) -> None:
    empty = await log.head("s")
    assert (empty.last_id, empty.last_seq, empty.oldest) == ("0-0", 0, None)
    appended = await asyncio.gather(*(log.append("s", "t", n) for n in range(50)))
    assert sorted(a.seq or 0 for a in appended) == list(range(1, 51))
    ids = [EventId.parse(a.id or "") for a in sorted(appended, key=lambda a: a.seq or 0)]
    assert ids == sorted(ids, key=lambda id: id or (0, 0))
    head = await log.head("s")
    assert (head.last_id, head.last_seq, head.epoch) == (str(ids[-1]), 50, empty.epoch)
    assert (head.oldest, head.oldest_seq) == (str(ids[0]), 1)
    assert (await log.append("other", "t", 1)).seq == 1
    assert (await log.head("other")).epoch != empty.epoch


async def test_pages(log: EventLog) -> None:
    ids = await fill(log, 25)
    got, after = [], "0-0"
    while after is not None:
        page = await log.page("s", after, 10)
        assert page.gap is None
        got += page.events
        after = page.next  # type: ignore[assignment]
    assert [frame["id"] for frame in got] == ids
    assert [frame["seq"] for frame in got] == list(range(1, 26))
    assert got[3] == {"type": "event", "id": ids[3], "seq": 4, "event": got[3]["event"]}
    assert got[3]["event"]["data"] == 3
    assert (await log.page("s", ids[-1], 10)).events == []
    assert (await log.page("s", ids[4], 3)).next == ids[7]
    assert (await log.page("empty", "0-0", 3)) == (await log.page("empty", "0-0", 3))
    assert (await log.page("s", "junk", 3)).gap == {
        "type": "replay_gap",
        "reason": "invalid",
        "oldest": ids[0],
    }


async def test_pages_are_bounded_in_bytes(log: EventLog) -> None:
    large = "x" * 60_000
    for _ in range(40):
        await log.append("s", "t", large)
    page = await log.page("s", "0-0", 1000)
    assert page.next is not None
    assert PAGE_MAX_BYTES * 0.9 < len(page.events) * 60_000 <= PAGE_MAX_BYTES
    rest = await log.page("s", page.next, 1000)
    assert len(rest.events) >= 17


async def test_an_event_reads_as_it_was_reported(log: EventLog) -> None:
    data = {"text": 'ü\u2028🛶 "x"\n', "list": [1, 2.5, None, True, {"": []}]}
    await log.append("s", 'a "type"', data, key="step/tool")
    await log.append("s", "b", None)
    one, two = (await log.page("s", "0-0", 10)).events
    at = one["event"].pop("at")
    assert one["event"] == {"type": 'a "type"', "data": data, "key": "step/tool"}
    assert isinstance(at, int)
    assert set(two["event"]) == {"type", "data", "at"}
    reader = await watch(log, "s", "0-0")
    assert reader.events[0]["event"] == {"type": 'a "type"', "data": data, "key": "step/tool", "at": at}


async def test_what_is_refused_leaves_nothing(log: EventLog) -> None:
    with pytest.raises(EventTooLarge):
        await log.append("s", "t", "x" * 65_536)
    with pytest.raises(InvalidEvent):
        await log.append("s", "", 1)
    assert (await log.head("s")).last_seq == 0
    assert (await log.append("s", "t", "x" * 65_534)).seq == 1


async def test_a_reader_gets_ready_then_what_comes(log: EventLog) -> None:
    await fill(log, 3)
    head = await log.head("s")
    reader = await watch(log, "s")
    assert reader.frames == [
        {"type": "ws_ready", "sessionId": "s", "lastEventId": head.last_id, "lastSeq": 3, "epoch": head.epoch}
    ]
    four = await log.append("s", "t", "four")
    assert reader.events == [{"type": "event", "id": four.id, "seq": 4, "event": reader.events[0]["event"]}]
    transient = await log.append("s", "delta", "x", transient=True)
    assert (transient.id, transient.seq) == (None, None)
    assert reader.events[1]["id"] is None and reader.events[1]["seq"] is None
    assert reader.events[1]["event"]["data"] == "x"
    assert (await log.append("s", "t", "five")).seq == 5
    assert reader.seqs == [4, None, 5]
    reader.end(None)
    await log.append("s", "t", "six")
    assert reader.seqs == [4, None, 5]


@pytest.mark.parametrize("waits", [False, True])
async def test_replay(log: EventLog, waits: bool) -> None:
    ids = await fill(log, 150)
    reader = await watch(log, "s", ids[19], waits=waits)
    assert [frame["type"] for frame in reader.frames] == ["ws_ready", *["event"] * 130, "replay_done"]
    assert reader.data == list(range(20, 150))
    assert reader.of("replay_done") == [{"type": "replay_done", "lastEventId": ids[-1]}]
    await log.append("s", "t", "live")
    assert reader.data[-1] == "live"
    assert (await watch(log, "s", "0-0", waits=waits)).data == [*range(150), "live"]
    nothing = await watch(log, "s", (await log.head("s")).last_id, waits=waits)
    assert [frame["type"] for frame in nothing.frames] == ["ws_ready", "replay_done"]
    fresh = await watch(log, "fresh", "0-0", waits=waits)
    assert fresh.of("replay_done") == [{"type": "replay_done", "lastEventId": "0-0"}]


@pytest.mark.parametrize("waits", [False, True])
async def test_a_gap_ends_the_replay_before_it_begins(log: EventLog, waits: bool) -> None:
    ids = await fill(log, 500)
    head = await log.head("s")
    assert head.oldest_seq is not None and 200 <= 500 - head.oldest_seq + 1 <= 320
    late = await watch(log, "s", Resume(ids[9], 10, head.epoch), waits=waits)
    missed = head.oldest_seq - 11
    gap = {"type": "replay_gap", "reason": "trimmed", "oldest": head.oldest, "missed": missed}
    assert late.frames[1:] == [gap]
    await log.append("s", "t", "live")
    assert late.data == ["live"]
    for after, epoch, reason in (
        ("x", None, "invalid"),
        (ids[-1], "zzz", "epoch"),
        (f"{2**63}-0", None, "epoch"),
    ):
        reader = await watch(log, "s", Resume(after, 500, epoch), waits=waits)
        assert [frame.get("reason") for frame in reader.frames[1:]] == [reason]
    inexact = (await log.page("s", ids[9], 5)).gap
    assert inexact == {"type": "replay_gap", "reason": "trimmed", "oldest": (await log.head("s")).oldest}


async def test_a_log_expires_and_its_numbers_go_on(request: pytest.FixtureRequest, until: Until) -> None:
    valkey: Valkey = request.getfixturevalue("valkey")
    for url in (None, valkey.url):
        async with running(url, event_log_ttl_ms=60_000) as log:
            ids = await fill(log, 3)
            before = await log.head("s")
            if url is None:
                log._store._now = lambda: 4e9  # type: ignore[attr-defined]
            else:
                assert 0 < valkey.client.pttl("moorage:events:{s}") <= 60_000
                assert valkey.client.ttl("moorage:events:{s}:meta") == -1
                valkey.client.delete("moorage:events:{s}")
            gap = (await log.page("s", ids[0], 5, last_seq=1, epoch=before.epoch)).gap
            assert gap == {"type": "replay_gap", "reason": "expired", "oldest": None, "missed": 2}
            assert (await log.page("s", ids[2], 5)).gap is None
            assert (await log.append("s", "t", 4)).seq == 4
            head = await log.head("s")
            assert (head.epoch, head.oldest_seq) == (before.epoch, 4)
            exact = await log.page("s", ids[2], 5, last_seq=3, epoch=before.epoch)
            assert [frame["seq"] for frame in exact.events] == [4]
            assert (await log.page("s", ids[2], 5)).gap is not None


async def test_ids_go_on_from_an_expired_log_though_the_clock_went_back(
    request: pytest.FixtureRequest, until: Until
) -> None:
    valkey: Valkey = request.getfixturevalue("valkey")
    async with running(valkey.url) as log:
        await fill(log, 3)
        ahead = f"{int(time.time() * 1000) + 3_600_000}-7"
        valkey.client.hset("moorage:events:{s}:meta", "last", ahead)
        valkey.client.delete("moorage:events:{s}")
        appended = await log.append("s", "t", 4)
        assert appended.id == ahead.replace("-7", "-8")
        head = await log.head("s")
        page = await log.page("s", ahead, 5, last_seq=3, epoch=head.epoch)
        assert [frame["seq"] for frame in page.events] == [4]
        assert head.oldest_seq == 4


async def test_the_expiry_slides(valkey: Valkey) -> None:
    async with running(valkey.url) as log:
        await fill(log, 1)
        valkey.client.pexpire("moorage:events:{s}", 5000)
        await fill(log, 1)
        assert valkey.client.pttl("moorage:events:{s}") > 21_000_000


async def test_a_deleted_session_ends_its_readers_and_keeps_nothing(log: EventLog) -> None:
    await fill(log, 3)
    one, two, other = await watch(log, "s"), await watch(log, "s"), await watch(log, "other")
    await log.delete("s")
    assert (one.code, two.code, other.code) == (4404, 4404, None)
    for attempt in (log.head("s"), log.page("s", "0-0", 5)):
        with pytest.raises(SessionDeleted):
            await attempt
    gone = await log.append("s", "t", "a task goes on")
    assert (gone.id, gone.seq) == (None, None)
    assert (await watch(log, "s", "0-0")).code == 4404


async def test_what_is_stored_is_as_the_protocol_says(valkey: Valkey) -> None:
    async with running(valkey.url) as log:
        appended = await log.append("s", "t", {"a": 1}, key="k")
        [(id, fields)] = valkey.client.xrange("moorage:events:{s}")  # type: ignore[misc]
        assert id.decode() == appended.id
        assert list(fields) == [b"seq", b"type", b"data", b"key", b"at"]
        assert (fields[b"seq"], fields[b"type"], fields[b"data"], fields[b"key"]) == (
            b"1",
            b"t",
            b'{"a":1}',
            b"k",
        )


async def test_foreign_entries_are_left_out(valkey: Valkey) -> None:
    async with running(valkey.url) as log:
        ids = await fill(log, 2)
        for fields in ({"junk": "1"}, {"seq": "x", "type": "t", "data": "1", "key": "", "at": "1"},
                       {"seq": "9", "type": "t", "data": "{no json", "key": "", "at": "1"},
                       {"seq": "9", "type": b"\xff", "data": "1", "key": "", "at": "1"}):  # fmt: skip
            valkey.client.xadd("moorage:events:{s}", fields)  # type: ignore[arg-type]
        await log.append("s", "t", "after")
        reader = await watch(log, "s", ids[0])
        assert reader.data == [1, "after"]
        assert reader.of("replay_done")


async def test_counts(log: EventLog) -> None:
    counted: list[Any] = []
    log.on_append = counted.append
    await log.append("s", "t", 1)
    await log.append("s", "t", 1, transient=True)
    await log.delete("s")
    await log.append("s", "t", 1)
    assert counted == ["ok", "transient", "deleted"]
