"""Gaps: every reason, in its order, and a model of what is really gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.events.frames import Head, Resume
from moorage.events.gaps import Gap, find_gap

KEPT = Head("70-0", 7, "e", "40-0", 4)
"""Numbers 1 to 7 at 10-0 … 70-0, of which 4 to 7 are kept."""
WHOLE = Head("30-0", 3, "e", "10-0", 1)
EXPIRED = Head("70-0", 7, "e")
EMPTY = Head("0-0", 0, "e")


@pytest.mark.parametrize(
    ("resume", "head", "first", "gap"),
    [
        # invalid comes before everything else
        (Resume("x", 1, "other"), KEPT, None, Gap("invalid", "40-0")),
        (Resume("", 1, "e"), EXPIRED, None, Gap("invalid", None)),
        # another epoch, or beyond the last
        (Resume("70-0", 7, "other"), KEPT, None, Gap("epoch", "40-0")),
        (Resume("0-0", 0, "other"), EMPTY, None, Gap("epoch", None)),
        (Resume("70-1"), KEPT, None, Gap("epoch", "40-0")),
        (Resume("1-0"), EMPTY, None, Gap("epoch", None)),
        (Resume("60-0", 9, "e"), KEPT, 7, Gap("epoch", "40-0")),  # the log begins again behind us
        # nothing came after it
        (Resume("70-0"), KEPT, None, None),
        (Resume("70-0", 7, "e"), EXPIRED, None, None),
        (Resume("0-0"), EMPTY, None, None),
        # expired
        (Resume("60-0", 6, "e"), EXPIRED, None, Gap("expired", None, 1)),
        (Resume("60-0"), EXPIRED, None, Gap("expired", None)),
        (Resume("0-0"), EXPIRED, None, Gap("expired", None)),
        # trimmed: exact with last_seq and epoch
        (Resume("10-0", 1, "e"), KEPT, 4, Gap("trimmed", "40-0", 2)),
        (Resume("20-0", 2, "e"), KEPT, 4, Gap("trimmed", "40-0", 1)),
        (Resume("30-0", 3, "e"), KEPT, 4, None),
        (Resume("0-0", 0, "e"), KEPT, 4, Gap("trimmed", "40-0", 3)),
        # and only with both
        (Resume("30-0", 3, None), KEPT, 4, Gap("trimmed", "40-0")),
        (Resume("30-0"), KEPT, 4, Gap("trimmed", "40-0")),
        (Resume("40-0"), KEPT, 5, None),
        # the beginning
        (Resume("0-0"), WHOLE, 1, None),
        (Resume("0-0"), KEPT, 4, Gap("trimmed", "40-0")),
        (Resume("9-0"), WHOLE, 1, Gap("trimmed", "10-0")),
    ],
)  # fmt: skip
def test_reasons(resume: Resume, head: Head, first: int | None, gap: Gap | None) -> None:
    assert find_gap(resume, head, first) == gap


def test_the_frame_has_missed_only_where_it_is_known() -> None:
    assert Gap("trimmed", "1-0", 3).frame() == {
        "type": "replay_gap", "reason": "trimmed", "oldest": "1-0", "missed": 3,
    }  # fmt: skip
    assert Gap("epoch", None).frame() == {"type": "replay_gap", "reason": "epoch", "oldest": None}


@given(st.integers(0, 30), st.data())
def test_with_seq_and_epoch_a_gap_is_exactly_what_is_gone(last: int, data: st.DataObject) -> None:
    kept_from = data.draw(st.integers(1, last + 1))
    at = data.draw(st.integers(0, last))
    kept = list(range(kept_from, last + 1))
    oldest = (f"{kept[0]}-0", kept[0]) if kept else (None, None)
    head = Head(f"{last}-0", last, "e", *oldest)
    after = [seq for seq in kept if seq > at]
    gap = find_gap(Resume(f"{at}-0", at, "e"), head, after[0] if after else None)
    gone = [seq for seq in range(at + 1, last + 1) if seq not in kept]
    if gone:
        assert gap == Gap("trimmed" if kept else "expired", oldest[0], len(gone))
    else:
        assert gap is None
