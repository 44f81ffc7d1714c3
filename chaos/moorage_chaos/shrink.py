"""A smaller list of faults that still breaks the promise, for a row that failed.

The seed makes the schedule of a row; which of its faults are injected is chosen by their numbers
(:class:`moorage_chaos.faults.base.Faults`). Delta debugging tries ever smaller sets of numbers, each by playing the row
again. A row that fails only sometimes may keep faults that it does not need, never lose one that it does: a set counts
only if it was seen to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from moorage_chaos.display import Display
from moorage_chaos.history import History
from moorage_chaos.runner import Runner, Selection
from moorage_chaos.verdict import RowResult

Faults = tuple[int, ...]


@dataclass(frozen=True)
class Shrunk:
    """What was found for one row. ``faults`` equals ``of`` if nothing could be left out."""

    row: str
    of: Faults
    faults: Faults
    tries: int
    """Plays of the row that it took."""

    def as_json(self) -> dict[str, object]:
        """``{"row", "of": [...], "faults": [...], "tries"}``."""
        return asdict(self)


class _Enough(Exception):
    """No more tries."""


def smaller(faults: Sequence[int], fails: Callable[[Faults], bool], tries: int) -> tuple[Faults, int]:
    """The smallest set found of which ``fails`` said True, and how often it was asked (at most ``tries``). ``faults``
    themselves are taken to fail. Minimal in the sense of ddmin if the tries sufficed: no single one can be left out."""
    best, asked = tuple(faults), 0

    def still(some: Faults) -> bool:
        nonlocal best, asked
        if asked >= tries:
            raise _Enough
        asked += 1
        if fails(some):
            best = some
            return True
        return False

    try:
        if still(()):
            return best, asked
        parts = 2
        while len(best) > 1:
            now = best
            size = -(-len(now) // parts)
            chunks = [now[i : i + size] for i in range(0, len(now), size)]
            if parts == 2 and any(still(chunk) for chunk in chunks):
                continue
            rests = [tuple(n for n in now if n not in chunk) for chunk in chunks] if parts > 2 else []
            if any(still(rest) for rest in rests):
                parts = max(parts - 1, 2)
            elif parts >= len(now):
                break
            else:
                parts = min(2 * parts, len(now))
    except _Enough:
        pass
    return best, asked


def shrink(selection: Selection, result: RowResult, console: Console, tries: int) -> Shrunk | None:
    """Play the row of a failed ``result`` of ``selection`` until its list of faults is small; None if it had none.
    Histories of the tries are in ``<report>/<row>/shrink/<n>``."""
    row = next(row for row in selection.rows if row.name == result.row)
    history = History.load(selection.folder / row.name / "history.jsonl")
    faults = selection.faults or tuple(range(1, len(history.pairs("fault")) + 1))
    if not faults:
        return None
    broken = {promise.name for promise in result.promises if promise.verdict == "failed"}
    number = 0

    def fails(some: Faults) -> bool:
        nonlocal number
        number += 1
        folder: Path = selection.folder / row.name / "shrink" / str(number)
        console.print(f"shrinking {row.name}, try {number} of {tries}: faults {named(some)}", highlight=False)
        trial = replace(selection, rows=[row], faults=some, folder=folder)
        with Display(console, 1) as display:
            runner = Runner(trial, display)
            [again] = asyncio.run(runner.run())
        if runner.interrupted:
            raise _Enough
        return any(promise.name in broken for promise in again.promises if promise.verdict == "failed")

    found, asked = smaller(faults, fails, tries)
    return Shrunk(row.name, faults, found, asked)


def named(faults: Sequence[int]) -> str:
    """As ``--faults`` takes them: ``3,9``, or ``none``."""
    return ",".join(map(str, faults)) or "none"


def parse(text: str) -> Faults:
    """The inverse of :func:`named`. Raises ValueError."""
    if text.strip() == "none":
        return ()
    numbers = sorted({int(word) for word in text.split(",")})
    if numbers[0] < 1:
        raise ValueError("faults are counted from 1")
    return tuple(numbers)
