"""Seconds since the row began, and buckets of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moorage_chaos.history import History

WIDTHS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Widths of a bucket that read well on an axis."""
BUCKETS = 150
"""About so many make a line that is neither a staircase nor noise."""


@dataclass(frozen=True)
class Timeline:
    """Turns monotonic ns into seconds from the first event."""

    start: int
    end: int

    @classmethod
    def of(cls, history: History) -> Timeline:
        times = [event.t for event in history.events]
        return cls(min(times, default=0), max(times, default=0))

    @property
    def seconds(self) -> float:
        return self.at(self.end)

    def at(self, t: int) -> float:
        return round((t - self.start) / 1e9, 4)

    @property
    def width_s(self) -> float:
        """Of a bucket."""
        return next((width for width in WIDTHS_S if self.seconds / width <= BUCKETS), WIDTHS_S[-1])

    def buckets(self) -> int:
        return int(self.seconds / self.width_s) + 1

    def bucket(self, t: int) -> int:
        return int((t - self.start) / 1e9 / self.width_s)


def steps(changes: Sequence[tuple[float, int]], columns: int = 1500) -> dict[str, list[float]]:
    """A staircase ``{"x", "y"}`` from (second, +1 or -1). With more steps than fit into ``columns`` of time, of each
    column the lowest, the highest and the last level are kept: no dip is lost."""
    level = 0
    points: list[tuple[float, int]] = []
    for x, change in sorted(changes):
        level += change
        points.append((x, level))
    if len(points) > 3 * columns:
        points = _thinned(points, columns)
    return {"x": [x for x, _ in points], "y": [float(y) for _, y in points]}


def _thinned(points: list[tuple[float, int]], columns: int) -> list[tuple[float, int]]:
    width = (points[-1][0] or 1.0) / columns
    groups: dict[int, list[int]] = {}
    for index, (x, _) in enumerate(points):
        groups.setdefault(int(x / width), []).append(index)
    kept: set[int] = set()
    for group in groups.values():
        kept |= {
            min(group, key=lambda i: points[i][1]),
            max(group, key=lambda i: points[i][1]),
            group[-1],
        }
    return [points[index] for index in sorted(kept)]
