"""Replicas that do not know each other must never serve side by side."""

from __future__ import annotations

from collections.abc import Iterator

from moorage_chaos.checkers.base import Checker, held
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def no_islands() -> Checker:
    """Of all ``serving`` notes: never two backends at once, never more than one pod without Redis (backend "")."""

    def check_no_islands(history: History) -> Iterator[Promise]:
        seen = [note.value["backends"] for note in history.notes("serving")]
        bad = [backends for backends in seen if len(set(backends)) > 1 or backends.count("") > 1]
        yield Promise(
            "moments with replicas that do not know each other",
            "0",
            len(bad),
            f"of {len(seen)}",
            held(not bad, bool(seen)),
            "; ".join(map(str, bad[:3])),
        )

    return check_no_islands
