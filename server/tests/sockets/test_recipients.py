from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.sockets.recipients import EVERYBODY, MACHINE, SESSION, USER_SCOPED, rooms_for


@pytest.mark.parametrize(
    ("kind", "target", "rooms"),
    [
        ("all-user-authenticated-connections", None, {"user:u"}),
        ("user-scoped-only", None, {"user:u:user-scoped"}),
        ("all-interested-in-session", "s", {"user:u:session:s", "user:u:user-scoped"}),
        ("machine-scoped-only", "m", {"user:u:machine:m", "user:u:user-scoped"}),
    ],
)
def test_filters(kind: str, target: str | None, rooms: set[str]) -> None:
    assert set(rooms_for("u", kind, target)) == rooms


@pytest.mark.parametrize(
    ("kind", "target"), [("", None), ("other", "x"), (SESSION, None), (SESSION, ""), (MACHINE, None)]
)
def test_what_is_no_filter(kind: str, target: str | None) -> None:
    with pytest.raises(ValueError):
        rooms_for("u", kind, target)


@given(st.sampled_from([EVERYBODY, USER_SCOPED, SESSION, MACHINE]), st.text(min_size=1))
def test_only_the_accounts_own_rooms_and_always_its_user_interfaces(kind: str, target: str) -> None:
    rooms = rooms_for("u", kind, target)
    assert all(room == "user:u" or room.startswith("user:u:") for room in rooms)
    assert {"user:u", "user:u:user-scoped"} & set(rooms)
