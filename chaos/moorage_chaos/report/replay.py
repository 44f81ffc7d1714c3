"""How to play one row of a run again."""

from __future__ import annotations

import re


def only(replay: str, row: str) -> str:
    """The command that plays this row alone; with the run's seed it plays as it did in the run. Empty if
    the run does not say how it was played."""
    return replay and re.sub(r" --only (?:'[^']*'|\S+)", "", replay) + f" --only {row}"
