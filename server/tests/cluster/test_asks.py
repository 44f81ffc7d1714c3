"""Questions to all members."""

from __future__ import annotations

from moorage.cluster.asks import Asks


def test_an_ask_is_done_when_all_answered_or_died() -> None:
    asks = Asks()
    ask_id, ask = asks.open(["b", "c", "d"])
    asks.answered(ask_id, "b", 1)
    asks.answered(ask_id, "b", "again")
    asks.answered(ask_id, "stranger", 2)
    asks.answered("unknown", "c", 3)
    asks.gone("c")
    assert not ask.done.is_set()
    asks.answered(ask_id, "d", 4)
    assert ask.done.is_set()
    assert (ask.answers, ask.missing) == ([1, 4], set())
    asks.close(ask_id)
    asks.gone("d")


def test_who_did_not_answer_before_the_end_stays_missing() -> None:
    asks = Asks()
    _, ask = asks.open(["b"])
    asks.give_up()
    assert ask.done.is_set() and ask.missing == {"b"}
