from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.shrink import named, parse, smaller


@given(st.integers(1, 24).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(1, n), max_size=4))))
def test_exactly_what_it_takes_is_left(case: tuple[int, set[int]]) -> None:
    count, needed = case
    found, asked = smaller(range(1, count + 1), lambda some: needed <= set(some), tries=1000)
    assert set(found) == needed
    assert asked <= 1000


@given(st.sets(st.integers(1, 12), min_size=1), st.integers(0, 6))
def test_what_is_left_was_seen_to_fail_however_few_the_tries(needed: set[int], tries: int) -> None:
    everything = tuple(range(1, 13))
    seen = {everything}

    def fails(some: tuple[int, ...]) -> bool:
        if needed <= set(some):
            seen.add(some)
            return True
        return False

    found, asked = smaller(everything, fails, tries)
    assert found in seen
    assert asked <= tries


def test_a_row_that_fails_only_sometimes_keeps_what_was_seen_to_fail() -> None:
    answers = itertools.cycle([False, True, False])
    found, _ = smaller((1, 2, 3, 4), lambda some: next(answers), tries=50)
    assert set(found) <= {1, 2, 3, 4}


def test_two_of_twenty_are_found_within_the_tries_of_the_command_line() -> None:
    found, _ = smaller(range(1, 21), lambda some: {7, 9} <= set(some), tries=24)
    assert len(found) <= 4
    assert {7, 9} <= set(found)


@given(st.sets(st.integers(1, 99)))
def test_a_list_of_faults_survives_the_command_line(numbers: set[int]) -> None:
    faults = tuple(sorted(numbers))
    assert parse(named(faults)) == faults


@pytest.mark.parametrize("text", ["", "x", "0", "1,,2", "-3"])
def test_a_list_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"counted from 1|invalid literal"):
        parse(text)
