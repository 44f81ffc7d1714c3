from __future__ import annotations

from moorage.client.event_retry import Tries


def longest(low: float, high: float) -> float:
    return high


def middle(low: float, high: float) -> float:
    return (low + high) / 2


def test_five_pauses_from_800_ms_doubling_to_8_s() -> None:
    tries = Tries(middle)
    assert [tries.pause(code) for code in (None, 1006, 4408, 1011, 4000)] == [0.8, 1.6, 3.2, 6.4, 8.0]
    assert tries.pause(None) is None
    tries.reset()
    assert tries.pause(None) == 0.8


def test_pauses_are_spread() -> None:
    pauses = {Tries().pause(None) for _ in range(20)}
    assert len(pauses) > 1
    assert all(pause is not None and 0.6 <= pause <= 1.0 for pause in pauses)


def test_goodbyes_are_answered_at_once_and_are_no_tries() -> None:
    tries = Tries(longest)
    assert tries.pause(1012) == 0.25
    for _ in range(20):
        assert tries.pause(1001) is not None
    assert tries.pause(1001) == 8.0  # a server that does nothing else is not asked in a tight loop
    assert (tries.used, tries.pause(None)) == (0, 1.0)
    tries.reset()
    assert tries.pause(1001) == 0.25
