"""Questions to all members that are under way. No I/O."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Ask:
    """One question: who has not answered, what the others said; ``done`` when nobody is missing."""

    missing: set[str]
    answers: list[Any] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def without(self, replica: str) -> None:
        self.missing.discard(replica)
        if not self.missing:
            self.done.set()


class Asks:
    """All questions under way, by id."""

    def __init__(self) -> None:
        self._asks: dict[str, Ask] = {}

    def open(self, replicas: Iterable[str]) -> tuple[str, Ask]:
        ask_id, ask = secrets.token_hex(6), Ask(set(replicas))
        self._asks[ask_id] = ask
        return ask_id, ask

    def close(self, ask_id: str) -> None:
        del self._asks[ask_id]

    def answered(self, ask_id: str, replica: str, answer: Any) -> None:
        """Late and unasked answers are ignored."""
        ask = self._asks.get(ask_id)
        if ask is not None and replica in ask.missing:
            ask.answers.append(answer)
            ask.without(replica)

    def gone(self, replica: str) -> None:
        """A dead replica has no sockets to answer for."""
        for ask in self._asks.values():
            ask.without(replica)

    def give_up(self) -> None:
        """Nobody will answer any more; who did not, stays missing."""
        for ask in self._asks.values():
            ask.done.set()
