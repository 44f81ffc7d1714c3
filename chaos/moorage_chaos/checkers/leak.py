"""No account gets what belongs to another."""

from __future__ import annotations

from collections.abc import Iterator

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def no_leak() -> Checker:
    """Everything received, run or answered carries the account that the receiver belongs to.

    ``received`` notes carry ``account`` (the client's) and ``owner`` (what the body is marked with); ``run``
    carries ``account`` (the daemon's) and ``owner`` (the caller's mark in the params); a call's answer
    carries ``owner``.
    """

    def check_no_leak(history: History) -> Iterator[Promise]:
        leaks = [
            f"{note.value.get('client')} got {note.value.get('event')} of {note.value['owner']}"
            for note in history.notes("received")
            if "owner" in note.value and note.value["owner"] != note.value.get("account")
        ]
        leaks += [
            f"{pair.value.get('daemon')} ran a call of {pair.value['owner']}"
            for pair in select(history, "run")
            if "owner" in pair.value and pair.value["owner"] != pair.value.get("account")
        ]
        leaks += [
            f"call {pair.invoke.id} was answered by {pair.result['owner']}"
            for pair in select(history)
            if "owner" in pair.result and pair.result["owner"] != pair.value.get("account")
        ]
        yield Promise(
            "data of another account", "0", len(leaks), "leaks", held(not leaks), "; ".join(leaks[:5])
        )

    return check_no_leak
