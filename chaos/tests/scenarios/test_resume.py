from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.probes import Place
from moorage_chaos.scenarios.resume import LONGEST_S, SHORTEST_S, TURNS, away, plan


@given(st.integers())
def test_a_turn_has_one_to_three_cuts_and_lasts_long_enough_for_them(seed: int) -> None:
    made = plan(random.Random(seed))
    lengths = [length for _, length in made.cuts] + ([made.closing[1]] if made.closing else [])
    assert 1 <= len(lengths) <= 3
    assert all(SHORTEST_S <= length <= LONGEST_S for length in lengths)
    assert made.length > sum(pause + length for pause, length in made.cuts)


@given(st.floats(SHORTEST_S, LONGEST_S))
def test_a_client_is_away_at_least_as_long_as_it_is_cut_off(cut: float) -> None:
    assert cut < away(cut) <= 14


def test_a_hundred_turns_have_about_two_hundred_cuts_a_third_of_them_at_the_end() -> None:
    rng = random.Random(1)
    plans = [plan(rng) for _ in range(TURNS)]
    ends = sum(made.closing is not None for made in plans)
    total = sum(len(made.cuts) for made in plans) + ends
    assert 170 < total < 230
    assert 0.25 < ends / total < 0.42


def test_a_place_names_only_what_it_knows() -> None:
    assert Place("1-0").query("after") == {"after": "1-0"}
    assert Place("1-0", 0, "e").query("last_event_id") == {
        "last_event_id": "1-0",
        "last_seq": "0",
        "epoch": "e",
    }
