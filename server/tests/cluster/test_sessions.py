"""What nodes tell of sockets, merged."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from moorage.cluster.sessions import RESTATE_S, Marker, Sessions, Told

WINDOW_S = 120.0
TOLD = st.builds(
    Told,
    turn=st.integers(0, 3),
    at=st.integers(0, 5),
    rooms=st.none() | st.lists(st.sampled_from("abc")),
    left=st.booleans(),
    ended=st.booleans(),
)
MARKERS = st.lists(
    st.builds(
        Marker, st.sampled_from(["x", "y"]), st.just(0), st.dictionaries(st.sampled_from(["s", "t"]), TOLD)
    )
)


def newest(markers: list[Marker], sid: str) -> tuple[int, int, str]:
    return max(
        (marker.sockets[sid].turn, marker.sockets[sid].at, marker.node)
        for marker in markers
        if sid in marker.sockets
    )


@given(MARKERS, st.randoms())
def test_the_newest_wins_in_whatever_order_they_are_read(markers: list[Marker], random: object) -> None:
    shuffled = copy.copy(markers)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    sessions = Sessions(WINDOW_S, only_here=True)
    for marker in shuffled:
        sessions.read(marker)
    for sid in {sid for marker in markers for sid in marker.sockets}:
        known = sessions.get(sid)
        assert known is not None
        assert known.version == newest(markers, sid)


def test_who_is_plainly_gone_costs_nothing_unless_it_comes_back() -> None:
    sessions = Sessions(WINDOW_S)
    gone = Told(at=5, left=True)
    sessions.read(Marker("x", 0, {f"s{number}": gone for number in range(1000)}))
    assert len(sessions) == 0
    sessions.apply("x", "s1", gone, found=True)
    assert len(sessions) == 1
    # one of which something was told is known to be gone
    sessions.read(Marker("x", 0, {"t": Told(at=4, rooms=["a"])}))
    sessions.read(Marker("x", 0, {"t": Told(at=5, left=True, ended=True)}))
    assert sessions.is_over("t", "x", 5)


def test_what_is_older_is_no_news() -> None:
    sessions = Sessions(WINDOW_S)
    assert sessions.read(Marker("x", 0, {"s": Told(turn=1, at=5)})) == ["s"]
    assert sessions.read(Marker("y", 0, {"s": Told(turn=0, at=9)})) == []


def test_unknown_before_anything_was_read() -> None:
    sessions = Sessions(WINDOW_S)
    assert not sessions.knows("s", "x", b"0-0", 0)


def test_known_from_its_beginning_with_a_sign_of_life() -> None:
    sessions = Sessions(WINDOW_S)
    now = 10_000_000
    sessions.since = b"%d-0" % now
    assert not sessions.knows("s", "x", b"%d-0" % (now - 1), now)
    assert not sessions.knows("s", "x", b"%d-0" % now, now)  # nothing is known of its node
    sessions.lives("x", now)
    assert sessions.knows("s", "x", b"%d-0" % now, now)


def test_known_when_more_was_read_than_can_matter() -> None:
    sessions = Sessions(WINDOW_S)
    now = 10_000_000
    sessions.since = b"%d-0" % (now - sessions.horizon_ms)
    assert sessions.knows("s", "x", b"5-0", now)
    sessions.since = b"%d-0" % (now - sessions.horizon_ms + 1)
    assert not sessions.knows("s", "x", b"5-0", now)


def test_over_after_the_window_or_a_goodbye() -> None:
    sessions = Sessions(WINDOW_S, only_here=True)
    now = 10_000_000
    sessions.read(Marker("x", now, {"left": Told(at=now, left=True), "ended": Told(left=True, ended=True)}))
    assert sessions.is_over("ended", "x", now)
    assert not sessions.is_over("left", "x", now + 120_000)
    assert sessions.is_over("left", "x", now + 120_001)


def test_over_when_its_node_was_not_heard_of_for_the_window() -> None:
    sessions = Sessions(WINDOW_S)
    sessions.lives("x", 1000)
    limit = 1000 + int((WINDOW_S + RESTATE_S) * 1000)
    assert not sessions.is_over("s", "x", limit)
    assert sessions.is_over("s", "x", limit + 1)
    assert sessions.is_over("s", "y", limit + 1)


def test_forgotten_when_it_cannot_come_back() -> None:
    time = [0.0]
    sessions = Sessions(WINDOW_S, now=lambda: time[0])
    for number in range(1000):
        time[0] = number * RESTATE_S
        sessions.apply("x", f"s{number}", Told(at=number, left=True), found=True)
    assert len(sessions) <= (WINDOW_S + 2 * RESTATE_S) / RESTATE_S + 1
