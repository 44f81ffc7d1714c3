"""Numbered tells, and who waits for them."""

from __future__ import annotations

from moorage.cluster.inboxes import CLOCK_WINDOW_S, Member
from moorage.cluster.tells import Tells


async def test_a_tell_is_what_was_added_since_the_last_one() -> None:
    tells = Tells()
    assert (tells.add("a"), tells.add("b")) == (1, 1)
    assert tells.take() == ["a", "b"]
    assert tells.take() == []
    assert tells.add("c") == 2


async def test_waiters_are_woken_in_order_of_their_numbers() -> None:
    tells = Tells()
    three, one, two = tells.applied(3), tells.applied(1), tells.applied(2)
    one.cancel()
    tells.wake(2)
    assert two.done() and not three.done()
    tells.wake(float("inf"))
    assert three.done() and not tells._waiting


def test_offset_of_a_peers_clock_follows_a_drift_and_ignores_slow_messages() -> None:
    member = Member("b", "boot", 0.0)
    assert member.clock is None
    member.compare_clocks(100.0, 40.0)
    member.compare_clocks(102.0, 41.0)  # this one took a second
    assert member.clock == 60.0
    member.compare_clocks(100 + CLOCK_WINDOW_S, 39 + CLOCK_WINDOW_S)
    assert member.clock == 60.0
    member.compare_clocks(100 + 2 * CLOCK_WINDOW_S, 39 + 2 * CLOCK_WINDOW_S)
    assert member.clock == 61.0
