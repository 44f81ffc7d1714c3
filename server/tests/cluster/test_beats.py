"""When silence is evidence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage.cluster.beats import BeatClock

INTERVAL, MISSES = 0.2, 6


def turn(clock: BeatClock, start: float, seconds: float, *, echo: bool = True, linked: bool = True) -> float:
    """The loop turns for ``seconds``, with or without our own beats coming back, with or without a link."""
    now, beat = start, start
    while now < start + seconds:
        now += clock.tick_s
        clock.ticked(now, linked=linked)
        if now >= beat and linked:
            clock.sent(now)
            beat = now + INTERVAL
            if echo:
                clock.echoed(now)
    return now


def test_missed_beats_while_healthy_are_evidence() -> None:
    clock = BeatClock(INTERVAL, MISSES)
    now = turn(clock, 0.0, 5.0)
    assert clock.silent(now - 1.25, now)
    assert not clock.silent(now - 1.15, now)


def test_without_our_own_echo_nothing_is_proven() -> None:
    clock = BeatClock(INTERVAL, MISSES)
    now = turn(clock, 0.0, 2.0)
    now = turn(clock, now, 30.0, echo=False)
    assert not clock.silent(1.9, now)


def test_without_a_link_nothing_is_proven_and_then_the_count_begins_anew() -> None:
    clock = BeatClock(INTERVAL, MISSES)
    now = turn(clock, 0.0, 2.0)
    heard = now
    now = turn(clock, now, 20.0, linked=False)
    assert not clock.silent(heard, now)
    assert not clock.silent(heard, turn(clock, now, 1.0))


def test_after_a_stall_the_count_begins_anew() -> None:
    clock = BeatClock(INTERVAL, MISSES)
    now = turn(clock, 0.0, 2.0)
    now += 0.7
    assert not clock.stalled(now)
    clock.ticked(now, linked=True)
    assert not clock.silent(1.9, now)
    assert clock.silent(1.9, turn(clock, now, 1.4))


def test_own_stall_is_seen_before_the_others_give_up() -> None:
    clock = BeatClock(INTERVAL, MISSES)
    now = turn(clock, 0.0, 1.0)
    assert not clock.stalled(now + 0.9)
    assert clock.stalled(now + 1.05)


class Peer:
    def __init__(self, heard: float) -> None:
        self.heard = heard


def test_the_next_look_is_when_the_first_peer_has_missed_its_beats() -> None:
    clock = BeatClock(INTERVAL, MISSES)
    now = turn(clock, 0.0, 5.0)
    peers = [Peer(now - 0.3), Peer(now - 1.15), Peer(now)]
    look = clock.next_look(peers, now)
    assert now + 0.04 < look < now + 0.06
    assert clock.silent(peers[1].heard, look)
    assert not any(clock.silent(peer.heard, look) for peer in (peers[0], peers[2]))
    assert clock.next_look([Peer(now - 9)], now) > now
    assert clock.next_look([], now) == float("inf")


@given(st.lists(st.tuples(st.floats(0.01, 3.0), st.booleans()), min_size=1, max_size=20))
def test_never_silent_within_the_limit_of_the_last_word(steps: list[tuple[float, bool]]) -> None:
    clock = BeatClock(INTERVAL, MISSES)
    now = 0.0
    for seconds, echo in steps:
        now = turn(clock, now, seconds, echo=echo)
        assert not clock.silent(now, now)
        assert not clock.silent(now - clock.limit_s + 0.001, now)
