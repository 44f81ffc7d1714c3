"""One order, whatever comes when."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from moorage.events.frames import START, EventId, Frame
from moorage.events.order import HELD_MAX, Order


def logged(seq: int, shift: int = 0) -> Frame:
    return Frame(b"%d" % seq, EventId(seq + shift, 0), seq)


def placed(seq: int = 0) -> Order:
    order = Order()
    order.place("e", seq, EventId(seq, 0))
    return order


def seqs(frames: list[Frame]) -> list[int | None]:
    return [frame.seq for frame in frames]


@given(st.integers(1, 40), st.integers(0, 40), st.randoms(use_true_random=False), st.data())
def test_every_arrival_order_gives_one_order(
    last: int, start: int, random: random.Random, data: st.DataObject
) -> None:
    start = min(start, last)
    order = Order()
    arrivals = [logged(seq) for seq in range(1, last + 1)] * data.draw(st.integers(1, 2))
    random.shuffle(arrivals)
    place_at = data.draw(st.integers(0, len(arrivals)))
    through: list[Frame] = []
    for number, frame in enumerate(arrivals):
        if number == place_at:
            through += order.place("e", start, EventId(start, 0))
        through += order.live("e", frame)
    if place_at == len(arrivals):
        through += order.place("e", start, EventId(start, 0))
    assert seqs(through) == list(range(start + 1, last + 1))
    assert not order.behind
    assert (order.seq, order.id) == (last, EventId(last, 0))
    assert order._size == 0 and not order._held


@given(st.sets(st.integers(1, 30)), st.randoms(use_true_random=False))
def test_what_is_missing_comes_from_the_log_and_once(arrived: set[int], random: random.Random) -> None:
    order, through = placed(), []
    arrivals = sorted(arrived)
    random.shuffle(arrivals)
    for seq in arrivals:
        through += order.live("e", logged(seq))
    last = max(arrived, default=0)
    assert order.behind == (arrived != set(range(1, last + 1)))
    for seq in range(order.seq + 1, last + 1):  # as it is in the log, after order.id
        through += order.read(logged(seq))
    assert seqs(through) == list(range(1, last + 1))
    assert not order.behind
    assert order._size == 0


@given(st.lists(st.integers(0, 12), max_size=25))
def test_events_without_id_keep_their_place(arrivals: list[int]) -> None:
    """0 stands for one without id. On the channel they follow what was appended before them."""
    order, through = placed(), []
    for seq in arrivals:
        through += order.idless(Frame(b"x")) if seq == 0 else order.live("e", logged(seq))
    through += order.settle(order.seq)
    numbers = [seq for seq in seqs(through) if seq is not None]
    assert numbers == sorted(set(numbers))
    assert seqs(through).count(None) == arrivals.count(0)


def test_an_event_without_id_waits_for_what_came_before_it() -> None:
    order = placed()
    assert order.live("e", logged(2)) == []
    assert order.idless(Frame(b"after 2")) == []
    assert seqs(order.live("e", logged(1))) == [1, 2, None]
    assert seqs(order.idless(Frame(b"now"))) == [None]


def test_another_epoch_is_doubt_until_the_log_is_read() -> None:
    order = placed(5)
    assert order.live("other", logged(1, 100)) == []
    assert order.behind
    assert seqs(order.place("other", 0, START)) == [1]
    assert not order.behind
    order.live("third", logged(9))
    order.settle(1)
    assert not order.behind
    assert order.live("other", logged(1)) == []


def test_a_known_number_with_a_newer_id_is_doubt() -> None:
    order = placed(5)
    order.live("e", logged(3))
    assert not order.behind
    order.live("e", logged(3, 100))
    assert order.behind


def test_what_is_heard_of_is_looked_for_and_given_up() -> None:
    order = placed(5)
    order.heard("e", 5)
    assert not order.behind
    order.heard("e", 2**52)
    assert order.behind
    order.settle(5)
    assert not order.behind


def test_what_waits_is_bounded() -> None:
    order = placed()
    for seq in range(2, 3 * HELD_MAX):
        order.live("e", logged(seq))
        order.idless(Frame(b"x"))
    assert len(order._held) == HELD_MAX
    assert len(order._idless) == HELD_MAX
    assert order.behind
    through = order.live("e", logged(1))
    assert through[-1].seq in (None, HELD_MAX + 1)
    assert order.behind  # the rest is in the log
