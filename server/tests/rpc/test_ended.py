"""What is remembered of ended requests."""

from __future__ import annotations

import pytest

from moorage.rpc import ended
from moorage.rpc.ended import Ended


def test_large_answers_push_out_answers_but_never_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended, "ANSWERS_MAX_BYTES", 1000)
    memory = Ended()
    for number in range(50):
        memory.add(str(number), b"x" * 400)
    assert memory.answer("49") and memory.answer("0") is None
    assert all(str(number) in memory for number in range(50))
    assert not memory.surely_never("0", 0)


def test_what_may_be_forgotten_is_never_called_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended, "IDS_MAX", 4)
    now = 1000.0
    monkeypatch.setattr(ended.time, "monotonic", lambda: now)
    memory = Ended()
    for number in range(4):
        memory.add(str(number))
    assert memory.surely_never("x", 900)  # nothing was dropped yet
    now = 1100.0
    for number in range(4, 16):
        memory.add(str(number))
    now = 1200.0
    assert "0" not in memory
    assert not memory.surely_never("0", 190)
    assert memory.surely_never("x", 10)


def test_an_id_without_an_answer_and_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ended, "ANSWERS_MAX", 3)
    memory = Ended()
    memory.add("cancelled")
    memory.add("twice", b"1")
    memory.add("twice", b"22")
    for number in range(5):
        memory.add(str(number), b"x")
    assert "cancelled" in memory and memory.answer("cancelled") is None
    assert len(memory._answers) == 3
    assert memory._bytes == 3
