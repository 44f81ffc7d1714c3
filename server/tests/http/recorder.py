"""A stand-in for the manager."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from moorage.errors import BackplaneError


class Emitted(NamedTuple):
    event: str
    payload: Any
    rooms: tuple[str, ...]
    skipped: tuple[str, ...]


@dataclass
class Recorder:
    """Stands in for the manager: keeps what is emitted and counts per account."""

    emitted: list[Emitted] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    fails: BackplaneError | None = None
    up: bool = True

    def emit_now(
        self, event: str, args: Sequence[Any], rooms: Collection[str], except_: Collection[str] = ()
    ) -> None:
        self.emitted.append(Emitted(event, args[0], tuple(rooms), tuple(except_)))

    async def emit_counted(
        self,
        counter: str,
        event: str,
        payload: dict[str, Any],
        rooms: Collection[str],
        except_: Collection[str] = (),
    ) -> int:
        if self.fails is not None:
            raise self.fails
        self.numbers[counter] = payload["seq"] = self.numbers.get(counter, 0) + 1
        self.emitted.append(Emitted(event, payload, tuple(rooms), tuple(except_)))
        return self.numbers[counter]
