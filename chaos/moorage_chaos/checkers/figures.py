"""One figure of the history against one bar."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moorage_chaos.checkers.base import Checker, held
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def at_most(name: str, bar: float, unit: str, measure: Callable[[History], float]) -> Checker:
    def check_at_most(history: History) -> Iterator[Promise]:
        value = measure(history)
        yield Promise(name, f"<= {bar:g}", round(value, 3), unit, held(value <= bar))

    return check_at_most


def at_least(name: str, bar: float, unit: str, measure: Callable[[History], float]) -> Checker:
    def check_at_least(history: History) -> Iterator[Promise]:
        value = measure(history)
        yield Promise(name, f">= {bar:g}", round(value, 3), unit, held(value >= bar))

    return check_at_least
