"""EventStream against a server on real sockets that cuts, closes, repeats, skips and forgets as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from moorage.client import Checkpoint, Event, EventStream, Rebuilt, Refused, Unreachable
from moorage.client import event_retry as retry
from moorage.client import event_stream as module

from .log_server import SESSION, LogServer, event_frame
from .replicas import BOUND_S, until

Make = Callable[..., EventStream]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes seconds elsewhere takes milliseconds here."""
    monkeypatch.setattr(retry, "FIRST_S", 0.01)
    monkeypatch.setattr(retry, "MOST_S", 0.02)
    monkeypatch.setattr(retry, "AT_ONCE_S", 0.01)


@pytest.fixture
async def server() -> AsyncIterator[LogServer]:
    async with LogServer().serving() as server:
        yield server


@pytest.fixture
async def make(server: LogServer) -> AsyncIterator[Make]:
    streams: list[EventStream] = []

    def make(**options: Any) -> EventStream:
        url, token = options.pop("url", server.url), options.pop("token", "good")
        streams.append(EventStream(url, token, options.pop("session_id", SESSION), **options))
        return streams[-1]

    yield make
    for stream in streams:
        await stream.close()


async def take(stream: EventStream, count: int) -> list[Any]:
    async with asyncio.timeout(BOUND_S):
        return [await anext(stream) for _ in range(count)]


def seqs(items: list[Any]) -> list[int | None]:
    assert all(isinstance(item, Event) for item in items), items
    return [item.seq for item in items]


async def test_events_come_in_order_and_the_checkpoint_follows_the_consumer(
    server: LogServer, make: Make
) -> None:
    saved: list[Checkpoint] = []
    stream = make(save=saved.append)
    await stream.start()
    await stream.ready()
    frames = [server.append(data={"n": n}, key=f"k{n}") for n in range(3)]
    first = await anext(stream)
    assert first == Event(frames[0]["id"], 1, "step", {"n": 0}, "k0", 1)
    assert stream.checkpoint == Checkpoint(frames[0]["id"], 1, "e1")
    assert [place.seq for place in saved] == [
        0
    ]  # the log's end, where it began; the first is not dealt with yet
    assert seqs(await take(stream, 2)) == [2, 3]
    assert [place.seq for place in saved] == [0, 1, 2]


async def test_a_cut_is_resumed_and_nothing_is_lost_or_doubled(server: LogServer, make: Make) -> None:
    stream = make()
    states: list[str] = []
    stream.on_state(states.append)
    await stream.start()
    await stream.ready()
    for cut in range(3):
        server.append()
        await until(lambda cut=cut: stream.statistics.events == 2 * cut + 1)
        server.cut()
        server.append()
        await until(lambda cut=cut: stream.statistics.events == 2 * cut + 2)
    assert seqs(await take(stream, 6)) == [1, 2, 3, 4, 5, 6]
    await until(lambda: stream.state == "live")
    assert server.connections[1] == {"last_event_id": server.ids[0], "last_seq": "1", "epoch": "e1"}
    assert states[:6] == ["connecting", "replaying", "live", "waiting", "connecting", "replaying"]
    assert (stream.statistics.resumes, stream.statistics.replayed, stream.statistics.missed) == (3, 3, 0)


async def test_a_connection_that_ends_without_a_word_is_no_close(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    server.cut(politely=True)
    await until(lambda: len(server.connections) == 2 and stream.state == "live")
    assert str(stream.cause) == "connection lost"


async def test_live_events_in_the_middle_of_a_replay(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    server.append()
    await take(stream, 1)
    server.replay_gate = asyncio.Event()
    server.cut()
    server.append()
    await until(lambda: len(server.connections) == 2 and server.sockets)
    server.append()  # live, while the replay has not begun; the replay brings it again
    await until(lambda: stream.state == "replaying")
    server.replay_gate.set()
    assert seqs(await take(stream, 2)) == [2, 3]
    await until(lambda: stream.state == "live")
    assert (stream.statistics.overlaps, stream.statistics.deduplicated) == (1, 1)


async def test_a_cut_in_a_replay_does_not_move_the_checkpoint(server: LogServer, make: Make) -> None:
    stream = make(begin="beginning")
    for _ in range(4):
        server.append()

    async def cut(ws: Any) -> None:
        server.before_done = None
        await until(lambda: stream.statistics.events == 4)
        server.cut()

    server.before_done = cut
    await stream.start()
    assert seqs(await take(stream, 4)) == [1, 2, 3, 4]
    await until(lambda: stream.state == "live")
    assert [query["last_event_id"] for query in server.connections] == ["0-0", "0-0"]
    assert stream.statistics.deduplicated == 4
    server.append()
    assert seqs(await take(stream, 1)) == [5]


@pytest.mark.parametrize(("code", "state"), [(1000, "closed"), (4401, "failed"), (4404, "failed")])
async def test_codes_that_stop(server: LogServer, make: Make, code: int, state: str) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    server.append()
    await until(lambda: stream.statistics.events == 1)
    await server.close(code)
    await until(lambda: stream.state == state)
    assert seqs(await take(stream, 1)) == [1]  # what came before is not lost
    with pytest.raises(StopAsyncIteration if state == "closed" else Refused):
        await take(stream, 1)
    assert len(server.connections) == 1


@pytest.mark.parametrize("code", [4408, 1011, 3000])
async def test_other_codes_come_back(server: LogServer, make: Make, code: int) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    await server.close(code)
    await until(lambda: len(server.connections) == 2 and stream.state == "live")
    assert str(stream.cause) == f"closed with {code}"


async def test_goodbyes_are_no_tries(server: LogServer, make: Make) -> None:
    server.close_at_once = [1012, 1001] * 5
    stream = make()
    await stream.start()
    await stream.ready()
    assert len(server.connections) == 11


async def test_five_tries_then_failed_then_reconnect(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    server.append()
    server.refuse = [503] * 6
    await until(lambda: stream.statistics.events == 1)
    server.cut()
    server.append()
    await until(lambda: stream.state == "failed")
    assert server.refuse == [503]  # five were used
    assert seqs(await take(stream, 1)) == [1]
    with pytest.raises(Unreachable, match="503"):
        await take(stream, 1)
    with pytest.raises(Unreachable, match="503"):
        await stream.ready()
    server.refuse = []
    await stream.reconnect()
    assert seqs(await take(stream, 1)) == [2]


async def test_success_resets_the_count(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.start()
    for round_ in range(4):
        await stream.ready()
        server.refuse = [502, 502, 502]
        server.cut()
        await until(lambda round_=round_: len(server.connections) == round_ + 2 and stream.state == "live")


@pytest.mark.parametrize(
    ("options", "text"),
    [({"token": "bad"}, "Invalid token"), ({"session_id": "other"}, "Session not found")],
)
async def test_refusals_before_the_upgrade_stop(make: Make, options: dict[str, Any], text: str) -> None:
    stream = make(**options)
    await stream.start()
    with pytest.raises(Refused, match=text):
        await stream.ready()
    assert stream.state == "failed"


@pytest.mark.parametrize("expires", ["before", "while live"])
async def test_a_token_that_expired_is_asked_for_anew(server: LogServer, make: Make, expires: str) -> None:
    tokens = ["old", "good"] if expires == "before" else ["good", "good"]
    stream = make(token=lambda: tokens.pop(0))
    await stream.start()
    await stream.ready()
    if expires == "while live":
        await server.close(4401)
        await until(lambda: len(server.connections) == 2 and stream.state == "live")
    assert tokens == []


async def test_nobody_listens(make: Make) -> None:
    stream = make(url="http://127.0.0.1:1")
    await stream.start()
    with pytest.raises(Unreachable):
        await stream.ready()
    assert stream.state == "failed"


async def test_a_server_that_says_nothing(
    server: LogServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "TRIES", 0)
    server.turn_gate = asyncio.Event()  # never set
    stream = make(open_timeout=1.5)  # of the handshake too, which must be done by then
    await stream.start()
    with pytest.raises(Unreachable, match=r"cannot rebuild: no answer within 1.5 s"):
        await stream.ready()


async def test_a_task_is_started_after_ws_ready_and_once(server: LogServer, make: Make) -> None:
    server.refuse = [503, 503]
    stream = make()
    await stream.start()
    assert await stream.start_task({"a": 1}, "demo") == "t1"
    assert len(server.connections) == 1
    first = (await take(stream, 1))[0]
    assert (first.type, first.data) == ("session_created", {"taskId": "t1", "input": {"a": 1}})
    server.cut()
    await until(lambda: len(server.connections) == 2 and stream.state == "live")
    assert server.tasks == [{"input": {"a": 1}, "handler": "demo"}]


async def test_replies(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.reply("q1", {"yes": True})
    assert server.replies == [{"questionId": "q1", "answer": {"yes": True}}]
    with pytest.raises(Refused, match="Question not found"):
        await stream.reply("q2", 1)


async def test_pings_are_answered(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    server.push({"type": "ping"})
    await until(lambda: server.heard == [{"type": "pong"}])


async def test_silence_is_a_dead_connection(
    server: LogServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE_S", 0.1)
    stream = make()
    await stream.start()
    await until(lambda: len(server.connections) >= 2)
    assert "silent" in str(stream.cause)


async def test_begin_with_the_turn(server: LogServer, make: Make) -> None:
    server.append()
    server.append("session_created")
    server.append()
    server.turn_gate = asyncio.Event()
    stream = make()
    await stream.start()
    await until(lambda: stream.state == "replaying")
    ready = asyncio.create_task(stream.ready())
    server.append()  # while the turn is fetched, which has it too
    assert not ready.done()  # or a task started now would be in the turn that is fetched
    server.turn_gate.set()
    await ready
    rebuilt = (await take(stream, 1))[0]
    assert isinstance(rebuilt, Rebuilt)
    assert rebuilt.turn is not None and rebuilt.gap is None
    assert seqs(list(rebuilt.new)) == seqs(list(rebuilt.turn.events)) == [2, 3, 4]
    server.append()
    assert seqs(await take(stream, 1)) == [5]
    assert stream.checkpoint == Checkpoint(server.ids[-1], 5, "e1")


async def test_begin_now_and_at_the_beginning(server: LogServer, make: Make) -> None:
    server.append("session_created")
    now, beginning = make(begin="now"), make(begin="beginning")
    for stream in (now, beginning):
        await stream.start()
        await until(lambda stream=stream: stream.state == "live")
    server.append()
    assert seqs(await take(now, 1)) == [2]
    assert seqs(await take(beginning, 2)) == [1, 2]


async def test_a_gap_is_rebuilt_from_the_turn(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    server.append("session_created")
    await take(stream, 1)
    server.refuse = [503]
    server.cut()
    for _ in range(5):
        server.append()
    server.trimmed_to = 3
    rebuilt = (await take(stream, 1))[0]
    assert isinstance(rebuilt, Rebuilt)
    assert rebuilt.turn is not None and rebuilt.gap is not None
    assert (rebuilt.gap.reason, rebuilt.gap.missed, rebuilt.missed) == ("trimmed", 2, 2)
    assert rebuilt.turn.truncated
    assert seqs(list(rebuilt.new)) == [4, 5, 6]
    server.append()
    assert seqs(await take(stream, 1)) == [7]
    assert (stream.statistics.missed, stream.statistics.gaps) == (2, 1)


async def test_another_epoch_is_rebuilt(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    server.append()
    await take(stream, 1)
    server.wipe("e2")
    server.append("session_created")  # number 1 again: the connection is left, and the server says the rest
    rebuilt = (await take(stream, 1))[0]
    assert isinstance(rebuilt, Rebuilt)
    assert rebuilt.gap is not None and rebuilt.gap.reason == "epoch"
    assert (seqs(list(rebuilt.new)), rebuilt.missed) == ([1], None)
    server.append()
    assert seqs(await take(stream, 1)) == [2]
    assert stream.checkpoint == Checkpoint(server.ids[-1], 2, "e2")


@pytest.mark.parametrize("fetching", [False, True])
async def test_a_server_that_begins_anew_in_mid_connection(
    server: LogServer, make: Make, fetching: bool
) -> None:
    server.append("session_created")
    stream = make()
    if fetching:  # the turn of the old log is still being fetched then
        server.turn_gate = asyncio.Event()
        await stream.start()
        await until(lambda: stream.state == "replaying")
    else:
        await stream.start()
        assert isinstance((await take(stream, 1))[0], Rebuilt)
    server.mute = True
    server.wipe("e2")
    server.append("session_created")
    server.append()
    place = {"lastEventId": server.ids[-1], "lastSeq": 2, "epoch": "e2"}
    server.push({"type": "ws_ready", "sessionId": SESSION, **place})
    server.push({"type": "replay_gap", "reason": "epoch", "oldest": server.ids[0]})
    if server.turn_gate is not None:
        server.turn_gate.set()
    rebuilt = (await take(stream, 1))[0]
    assert isinstance(rebuilt, Rebuilt)
    assert rebuilt.gap is not None and rebuilt.gap.reason == "epoch"
    assert seqs(list(rebuilt.new)) == [1, 2]
    server.mute = False
    server.append()
    assert seqs(await take(stream, 1)) == [3]
    assert (stream.statistics.connections, len(server.connections)) == (1, 1)


async def test_a_turn_longer_than_one_answer_is_read_on(server: LogServer, make: Make) -> None:
    server.append("session_created")
    server.append()
    server.turn_length = 2
    server.append()
    server.append()
    stream = make()
    await stream.start()
    rebuilt = (await take(stream, 1))[0]
    assert isinstance(rebuilt, Rebuilt)
    assert seqs(list(rebuilt.new)) == [1, 2]
    assert seqs(await take(stream, 2)) == [3, 4]
    assert stream.statistics.missed == 0


async def test_a_turn_that_cannot_be_had_is_a_lost_connection(server: LogServer, make: Make) -> None:
    server.append("session_created")
    server.turn_fails = 2
    stream = make()
    await stream.start()
    assert isinstance((await take(stream, 1))[0], Rebuilt)
    assert len(server.connections) == 3
    assert "cannot rebuild" in str(stream.cause)


async def test_a_session_that_is_gone_ends_the_rebuilding(server: LogServer, make: Make) -> None:
    """The server lost its data and did not close the connection: the turn's 404 says it."""
    server.append("session_created")
    server.turn_refused = True
    stream = make()
    await stream.start()
    with pytest.raises(Refused, match="Session not found"):
        await take(stream, 1)
    assert (stream.state, len(server.connections)) == ("failed", 1)


async def test_a_refused_task_says_why(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.start()
    with pytest.raises(Refused, match="Unknown handler: No worker has a handler named nosuch"):
        await stream.start_task({}, "nosuch")


async def test_a_hole_is_read_from_the_log(
    server: LogServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOLE_S", 0.05)
    stream = make()
    await stream.start()
    await stream.ready()
    server.append()
    server.mute = True
    server.append()
    server.mute = False
    server.append()
    assert seqs(await take(stream, 3)) == [1, 2, 3]
    assert len(server.connections) == 2
    assert "did not come" in str(stream.cause)


async def test_a_server_that_skips_the_replay_is_found_out(
    server: LogServer, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HOLE_S", 0.05)
    stream = make()
    await stream.start()
    await stream.ready()
    server.append()
    await take(stream, 1)
    server.skip_replay = True
    server.refuse = [503]
    server.cut()
    server.append()
    server.append()
    await until(lambda: stream.statistics.missed == 2)
    server.append()
    assert seqs(await take(stream, 1)) == [4]


async def test_a_slow_consumer_stops_the_reading_and_loses_nothing(server: LogServer, make: Make) -> None:
    stream = make(queue=10, begin="beginning")
    for _ in range(300):
        server.append()
    await stream.start()
    await until(lambda: stream.statistics.events >= 9)
    await asyncio.sleep(0)
    assert stream.statistics.events <= 10
    assert seqs(await take(stream, 300)) == list(range(1, 301))


async def test_events_without_an_id_move_nothing(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    server.append()
    server.push(event_frame(None, None, "delta"))
    items = await take(stream, 2)
    assert [(item.type, item.seq) for item in items] == [("step", 1), ("delta", None)]
    assert stream.checkpoint is not None and stream.checkpoint.seq == 1
    assert stream.statistics.unlogged == 1


async def test_junk_is_counted(server: LogServer, make: Make) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    server.push({"type": "event", "id": "7", "seq": 1, "event": {"type": "t"}})
    server.push({"type": "of a later version"})
    server.append()
    assert seqs(await take(stream, 1)) == [1]
    assert stream.statistics.malformed == 2


async def test_a_bug_is_a_lost_connection(
    server: LogServer, make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream = make()
    await stream.start()
    await stream.ready()
    done = stream._ledger.event
    broken = iter([ZeroDivisionError("mine")])

    def event(frame: Event) -> list[Event]:
        for error in broken:
            raise error
        return done(frame)

    monkeypatch.setattr(stream._ledger, "event", event)
    server.append()
    assert seqs(await take(stream, 1)) == [1]
    assert str(stream.cause) == "ZeroDivisionError: mine"
    assert "a bug" in caplog.text


async def test_closed_and_started_again_it_goes_on_where_it_was(server: LogServer, make: Make) -> None:
    stream = make()
    async with stream:
        server.append()
        assert seqs(await take(stream, 1)) == [1]
    assert stream.state == "closed"
    with pytest.raises(StopAsyncIteration):
        await take(stream, 1)
    server.append()
    async with stream:
        assert seqs(await take(stream, 1)) == [2]


async def test_another_process_goes_on_from_a_kept_checkpoint(server: LogServer, make: Make) -> None:
    async with make() as stream:
        server.append()
        server.append()
        await take(stream, 1)
        kept = stream.checkpoint  # the second was received, and not dealt with
    assert kept is not None and kept.seq == 1
    async with make(checkpoint=kept) as stream:
        assert seqs(await take(stream, 1)) == [2]


async def test_reconnect_replaces_a_connection(server: LogServer, make: Make) -> None:
    async with make() as stream:
        await stream.reconnect()
        await until(lambda: len(server.connections) == 2 and stream.state == "live")


async def test_a_callback_that_raises_stops_nothing(server: LogServer, make: Make) -> None:
    def raising(*args: object) -> None:
        raise RuntimeError("mine")

    stream = make(save=raising)
    stream.on_state(raising)
    async with stream:
        server.append()
        server.append()
        assert seqs(await take(stream, 2)) == [1, 2]
