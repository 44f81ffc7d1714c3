"""Private ids: what is issued is read; anything else is nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.cluster.pids import PID_MAX_CHARS, Pids

PIDS = Pids("a key of the tests, long enough to sign")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)


@given(TEXT, TEXT, TEXT, TEXT)
def test_what_is_issued_is_read(sid: str, namespace: str, node: str, identity: str) -> None:
    pid = PIDS.read(PIDS.issue(sid, namespace, node, b"17-3", identity))
    assert pid is not None
    assert pid == (sid, namespace, node, b"17-3", PIDS.digest(identity))


SAME_BITS = str.maketrans("+/", "-_")
"""Base64 has two alphabets, and both are read: to the same bytes, which are what is signed."""


@given(st.integers(0), st.characters(codec="ascii"))
def test_one_other_character_makes_it_nothing(where: int, other: str) -> None:
    issued = PIDS.issue("sid", "/", "node", b"17-3", "somebody")
    where %= len(issued) - 1  # the last one may hold bits that mean nothing
    changed = issued[:where] + other + issued[where + 1 :]
    same = changed.translate(SAME_BITS) == issued
    assert (PIDS.read(changed) is None) is not same


@given(st.none() | st.integers() | st.text() | st.binary() | st.lists(st.text()))
def test_junk_is_nothing(junk: object) -> None:
    assert PIDS.read(junk) is None
    assert PIDS.read("1." + str(junk)) is None


def test_of_another_key_is_nothing() -> None:
    assert Pids("another key").read(PIDS.issue("sid", "/", "node", b"1-1", "somebody")) is None


@pytest.mark.parametrize("secret", ["account-name", "session-77"])
def test_nothing_of_the_identity_can_be_read(secret: str) -> None:
    import base64

    issued = PIDS.issue("sid", "/", "node", b"17-3", f"({secret})")
    body = issued.partition(".")[2]
    assert secret.encode() not in base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))
    assert len(issued) < 200


def test_too_long_is_nothing() -> None:
    assert PIDS.read(PIDS.issue("s" * PID_MAX_CHARS, "/", "node", b"1-1", "somebody")) is None
