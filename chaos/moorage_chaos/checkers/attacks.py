"""What hostile clients got for an answer."""

from __future__ import annotations

from collections.abc import Iterator

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise


def got(pair: Pair) -> str:
    """The code of a call, or what the row wrote down."""
    return str(pair.result.get("code") or pair.result.get("got"))


def answered_as_expected(expected: int) -> Checker:
    """Each ``attack`` with an expectation was answered so; ``any refusal`` is anything but ``accepted``."""

    def check_answered_as_expected(history: History) -> Iterator[Promise]:
        pairs = select(history, "attack")
        wrong = [
            f"{pair.value['what']}: {got(pair)}, not {pair.value['expected']}"
            for pair in pairs
            if (
                got(pair) == "accepted"
                if pair.value["expected"] == "any refusal"
                else got(pair) != pair.value["expected"]
            )
        ]
        yield Promise(
            "attacks answered as they should be",
            f"{len(pairs)}/{len(pairs)}",
            f"{len(pairs) - len(wrong)}/{len(pairs)}",
            "attacks",
            held(not wrong, len(pairs) >= expected),
            "; ".join(wrong[:5]),
        )

    return check_answered_as_expected


def no_replica_exits() -> Checker:
    """The same replicas are ready before and after, and the driver saw none die."""

    def check_no_replica_exits(history: History) -> Iterator[Promise]:
        deaths = history.notes("death")
        listed = {note.value["when"]: note.value["ids"] for note in history.notes("replicas")}
        same = listed.get("before") == listed.get("after")
        known = bool(listed.get("before")) and "after" in listed
        yield Promise(
            "replicas that exited",
            "0",
            len(deaths),
            "replicas",
            held(not deaths and same, known),
            "" if same else f"{listed.get('before')} became {listed.get('after')}",
        )

    return check_no_replica_exits
