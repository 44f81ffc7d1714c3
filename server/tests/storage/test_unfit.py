"""What JSON cannot hold is found, and named without what it holds."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.storage.state import plain
from moorage.storage.unfit import unfit


def deep(levels: int) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


def circle() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"items": [1, 2, 3, {4}]}, "data.items[3]: set"),
        (b"x", "data: bytes"),
        ([("a", b"x")], "data[0][1]: bytes"),
        ({"a": {1: 2}}, "data.a: dict with a key of type int"),
        ({"what somebody sent": object()}, "data[…]: object"),
        ({"x" * 41: 2**64}, "data[…]: integer beyond 64 bits"),
        (["\ud800"], "data[0]: text with a lone surrogate"),
        ({"a": {"\ud800": 1}}, "data.a: dict whose key is text with a lone surrogate"),
        ({"a": deep(300)}, "nested too deep"),
        (circle(), "nested too deep"),
        ([datetime.timedelta(1)], "data[0]: timedelta"),
    ],
)
def test_the_place_and_the_type(value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=r"^not representable as JSON: data") as raised:
        plain(value, "data")
    assert said in str(raised.value)


def test_without_a_name() -> None:
    assert unfit({"a": [set()]}, "") == "a[0]: set"
    assert unfit(set(), "") == "set"


values = st.recursive(
    st.none() | st.floats() | st.text(st.characters(codec="utf-8")) | st.just({1}) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def why(value: Any) -> str:
    try:
        plain(value)
    except ValueError as error:
        return str(error)
    return ""


@given(values)
def test_it_is_found_whatever_surrounds_it(value: Any) -> None:
    assert why(value) == "" or why(value).endswith(("set", "bytes"))
