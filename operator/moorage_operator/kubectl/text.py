"""Values as text for a terminal, and what people type as values. Pure."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
DURATION = re.compile(r"(?:\d+[smhd])+")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of aligned columns, as kubectl prints them; an empty cell is a dash."""
    cells = [list(header), *([cell or "-" for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return [
        "   ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def fields(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Lines ``name  value``, aligned; those with an empty value are left out."""
    shown = [(name, value) for name, value in pairs if value]
    width = max((len(name) for name, _ in shown), default=0)
    return [f"{name:<{width}}   {value}" for name, value in shown]


def moment(stamp: str | None) -> datetime.datetime | None:
    """A time of the API (RFC 3339); None for none, and for what is none."""
    try:
        return datetime.datetime.fromisoformat(stamp) if stamp else None
    except ValueError:
        return None


def age(stamp: str | None, now: datetime.datetime) -> str:
    """Time since ``stamp`` in kubectl's short form: 42s, 7m, 3h, 12d."""
    then = moment(stamp)
    return "" if then is None else span((now - then).total_seconds())


def span(seconds: float) -> str:
    """[s] → 42s, 7m, 3h, 12d; two of the larger unit are worth the change (kubectl's rule)."""
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole}s"
    if whole < 7200:
        return f"{whole // 60}m"
    return f"{whole // 3600}h" if whole < 172_800 else f"{whole // 86_400}d"


def duration(text: str) -> float:
    """``90s``, ``10m``, ``1h30m``, ``2d`` → seconds. Raises ``ValueError`` for anything else."""
    if not DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration such as 90s, 10m, 1h30m or 2d")
    return float(sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text)))
