"""Judges: each reads a history, and nothing else, and returns promises.

Here live pure functions of a history, a promise a file. No clock, no network, no driver. A checker that
raises has judged nothing: its promise is ``unknown``.
"""

from collections.abc import Callable

from moorage_chaos.checkers.base import Checker, judge
from moorage_chaos.checkers.disconnected import honest_disconnects
from moorage_chaos.checkers.leak import no_leak
from moorage_chaos.checkers.runs import at_most_once, delivered_honest
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def honest(history: History) -> list[Promise]:
    """What holds in every row, whatever it does: honest ends, no run twice, nothing of another account."""
    return judge(history, (honest_disconnects(), delivered_honest(), at_most_once(), no_leak()))


ALWAYS: tuple[Callable[[History], list[Promise]], ...] = (honest,)
"""Judged for every row beside the row's own promises."""

__all__ = ["ALWAYS", "Checker", "honest", "judge"]
