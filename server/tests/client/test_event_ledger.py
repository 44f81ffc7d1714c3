"""The ledger: whatever the frames' order and repetition, each event once, in order, or counted as missed."""

from __future__ import annotations

import pytest
from hypothesis import given

from moorage.client.event_frames import Checkpoint, Event, Gap, turn_of
from moorage.client.event_ledger import Ledger, OtherLog, Seen

from .log_histories import ACTIONS, History, Log


def event(seq: int, type_: str = "step") -> Event:
    return Event(f"{990 + seq}-0", seq, type_)


def reading(at: int = 0, **begin: bool) -> Ledger:
    """A ledger on a connection that resumes after event ``at``; the log ends at 100."""
    ledger = Ledger(Checkpoint(f"{990 + at}-0" if at else "0-0", at, "e"))
    ledger.begin(**begin)
    ledger.ready(Checkpoint("1090-0", 100, "e"))
    return ledger


def seqs(events: list[Event] | None) -> list[int | None]:
    assert events is not None
    return [event.seq for event in events]


@given(ACTIONS)
def test_each_event_once_in_order_or_counted_as_missed(actions: list[str]) -> None:
    history = History()
    history.play(actions)
    history.finish()
    reader, log = history.reader, history.log
    handed = [event.seq for event in reader.handed if event.seq is not None]
    statistics = reader.ledger.statistics
    assert history.start is not None
    assert handed == sorted(set(handed))
    assert all(seq > history.start for seq in handed)
    assert len(handed) + statistics.missed == len(log.frames) - history.start
    assert statistics.events == len(handed)
    assert reader.ledger.checkpoint == log.head
    assert not reader.ledger.hole
    idless = [event.type for event in reader.handed if event.seq is None]
    assert idless == list(dict.fromkeys(idless))


@given(ACTIONS)
def test_the_checkpoint_never_moves_back_and_not_in_a_replay(actions: list[str]) -> None:
    history = History()
    history.play(actions)
    places = [step["checkpoint"] for step in history.reader.steps]
    known = [place[1] for place in places if place is not None]
    assert known == sorted(known)
    for before, step in zip(history.reader.steps, history.reader.steps[1:], strict=False):
        # what is told by a replay does not move it
        if step["op"] == "event" and any(told[3] for told in step["told"]):
            assert step["checkpoint"] == before["checkpoint"]


@given(ACTIONS)
def test_the_memory_for_ids_holds_about_one_turn(actions: list[str]) -> None:
    history = History()
    history.play(actions)
    history.finish()
    assert len(history.reader.ledger.seen) <= len(history.log.frames) - max(0, history.log.turn_begins - 1)


def test_live_ahead_of_the_replay_waits_for_it() -> None:
    ledger = reading()
    assert ledger.event(event(4)) == []
    assert ledger.event(event(5)) == []
    assert seqs(ledger.event(event(1))) == [1]
    assert seqs(ledger.event(event(2))) == [2]
    assert seqs(ledger.event(event(3))) == [3, 4, 5]
    assert ledger.checkpoint == Checkpoint("0-0", 0, "e")  # still in the replay
    assert ledger.event(event(4)) == []
    ledger.done(event(5).id or "")
    assert ledger.checkpoint == Checkpoint("995-0", 5, "e")
    assert ledger.statistics.deduplicated == ledger.statistics.overlaps == ledger.statistics.resumes == 1


def test_a_cut_in_the_replay_resumes_before_it_and_shows_nothing_twice() -> None:
    ledger = reading()
    for seq in (1, 2, 3):
        ledger.event(event(seq))
    ledger.begin()
    assert ledger.checkpoint == Checkpoint("0-0", 0, "e")
    ledger.ready(Checkpoint("1090-0", 100, "e"))
    assert [seqs(ledger.event(event(seq))) for seq in (1, 2, 3, 4)] == [[], [], [], [4]]
    assert ledger.statistics.overlaps == 0  # they were known before this connection


def test_a_new_turn_in_the_middle_of_a_replay_does_not_make_it_forget() -> None:
    ledger = reading()
    ledger.event(event(1))
    ledger.event(event(2))
    ledger.begin()
    ledger.ready(Checkpoint("1090-0", 100, "e"))
    ledger.event(event(4, "session_created"))
    assert [seqs(ledger.event(event(seq))) for seq in (1, 2, 3)] == [[], [], [3, 4]]
    assert [ledger.event(event(seq)) for seq in (1, 2, 3, 4)] == [
        [],
        [],
        [],
        [],
    ]  # a catch-up brings them again


def test_the_set_is_cleared_when_a_turn_begins() -> None:
    ledger = Ledger()
    ledger.begin()
    ledger.ready(Checkpoint("0-0", 0, "e"))
    for seq in range(1, 50):
        ledger.event(event(seq))
    assert len(ledger.seen) == 49
    ledger.event(event(50, "session_created"))
    assert len(ledger.seen) <= 1
    assert ledger.event(event(50)) == ledger.event(event(7)) == []
    assert ledger.statistics.deduplicated == 2


def test_events_without_an_id_keep_their_place() -> None:
    ledger = reading()
    ledger.event(event(1))
    assert [e.type for e in ledger.event(Event(None, None, "first"))] == ["first"]
    ledger.event(event(3))
    assert ledger.event(Event(None, None, "after 3")) == []
    assert [e.type for e in ledger.event(event(2))] == ["step", "step", "after 3"]
    ledger.event(event(5))
    ledger.event(Event(None, None, "left"))
    assert [e.type for e in ledger.begin()] == ["left"]


def test_a_hole_while_live_is_waited_for_and_then_read_anew() -> None:
    ledger = reading()
    ledger.done("0-0")
    ledger.event(event(1))
    assert not ledger.hole
    ledger.event(event(3))
    assert ledger.hole
    assert ledger.checkpoint == Checkpoint("991-0", 1, "e")
    assert ledger.give_up() is None
    assert seqs(ledger.event(event(2))) == [2, 3]  # a catch-up brought it after all
    assert not ledger.hole


def test_a_hole_that_the_log_itself_has_is_missed() -> None:
    ledger = reading()
    ledger.event(event(1))
    ledger.event(event(4))
    ledger.done(event(4).id or "")
    assert ledger.hole
    assert seqs(ledger.give_up()) == [4]
    assert not ledger.hole
    assert (ledger.statistics.missed, ledger.statistics.gaps) == (2, 1)


def test_a_replay_that_brings_nothing_of_what_it_claims_is_missed() -> None:
    ledger = reading(90)
    ledger.done("1090-0")
    assert ledger.hole
    assert ledger.give_up() == []
    assert ledger.statistics.missed == 10
    assert ledger.checkpoint == Checkpoint("1090-0", 100, "e")
    assert seqs(ledger.event(event(101))) == [101]


@pytest.mark.parametrize(("id_", "seq"), [("2000-0", 3), ("2000-0", 5), ("993-1", 9)])
def test_ids_and_numbers_that_contradict_each_other_are_another_log(id_: str, seq: int) -> None:
    ledger = reading()
    for known in range(1, 6):
        ledger.event(event(known))
    with pytest.raises(OtherLog):
        ledger.event(Event(id_, seq, "step"))


def test_a_checkpoint_that_is_only_an_id_takes_the_numbers_as_they_come() -> None:
    ledger = Ledger(Checkpoint("995-0"))
    ledger.begin()
    ledger.ready(Checkpoint("1090-0", 100, "e"))
    assert seqs(ledger.event(event(6))) == [6]
    ledger.done("996-0")
    assert ledger.checkpoint == Checkpoint("996-0", 6, "e")


def test_a_gap_holds_live_back_until_the_turn_is_known() -> None:
    log = Log()
    for _ in range(6):
        log.append("step")
    log.append("session_created")
    log.append("step")
    ledger = Ledger(Checkpoint(log.frames[1]["id"], 2, "e1"))
    ledger.begin()
    ledger.ready(log.head)
    ledger.gap(Gap("trimmed", log.frames[4]["id"], 2))
    log.append("step")
    following = [Event(frame["id"], frame["seq"], "step") for frame in log.frames[7:9]]
    assert [ledger.event(e) for e in following] == [[], []]
    log.frames.pop()
    rebuilt, waiting = ledger.rebuilt(turn_of(log.turn()))
    assert rebuilt is not None
    assert seqs(list(rebuilt.new)) == [7, 8]
    assert rebuilt.missed == 4  # 3 to 6: two are gone, two belong to no turn that is shown
    assert [seqs(ledger.event(e)) for e in waiting] == [[], [9]]


def test_ids_are_compared_as_numbers() -> None:
    seen = Seen()
    seen.floor = (1000, 9)
    assert "999-999" in seen
    assert "1000-10" not in seen
