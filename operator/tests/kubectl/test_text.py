from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_operator.kubectl.text import DURATION, age, duration, fields, moment, span, table

from .fake import NOW, ago


def test_a_table_has_aligned_columns_and_dashes_for_nothing() -> None:
    lines = table(("NAME", "N"), [("a", "1"), ("longer", "")])
    assert lines == ["NAME     N", "a        1", "longer   -"]


def test_fields_without_a_value_are_left_out() -> None:
    assert fields([("Mode", "Clustered"), ("Draining", "")]) == ["Mode   Clustered"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")]
)
def test_a_span_is_short(seconds: float, text: str) -> None:
    assert span(seconds) == text
    assert age(ago(seconds), NOW) == text


@pytest.mark.parametrize("stamp", [None, "", "yesterday"])
def test_what_is_no_time_has_no_age(stamp: str | None) -> None:
    assert moment(stamp) is None
    assert age(stamp, NOW) == ""


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_durations_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert duration(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds


@given(st.text(max_size=8))
def test_any_other_text_is_refused_not_misread(text: str) -> None:
    if DURATION.fullmatch(text):
        assert duration(text) >= 0
    else:
        with pytest.raises(ValueError, match="no duration"):
            duration(text)


@pytest.mark.parametrize("text", ["", "10", "m", "10 m", "-5s", "1.5h", "10ms"])
def test_near_misses_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        duration(text)
