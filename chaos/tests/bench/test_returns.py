from __future__ import annotations

from moorage_chaos.bench.returns import Receiver


def receiver(*numbers: int) -> Receiver:
    return Receiver({}, list(numbers))


def test_lost_and_doubled() -> None:
    got = receiver(1, 2, 2, 4)
    assert got.lost({1, 2, 3, 4}) == 1
    assert got.doubled == 1


def test_disorder_is_against_another_receiver() -> None:
    assert receiver(3, 1, 2).disorder(receiver(3, 1, 2)) == 0
    assert receiver(3, 2, 1).disorder(receiver(3, 1, 2)) == 1
    assert receiver(9, 3, 1).disorder(receiver(3, 1)) == 0  # what the other lacks says nothing


def test_the_offset_is_the_last_argument_that_is_a_text() -> None:
    got = receiver()
    got._got(b'42["update",{"body":{"n":1}},"5-0"]')
    got._got(b'42["ephemeral",{"n":2}]')
    got._got(b'421["ask",{"n":3},"6-0"]')
    assert (got.numbers, got.offset) == ([1, 2], "5-0")
