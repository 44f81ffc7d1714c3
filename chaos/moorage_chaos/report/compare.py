"""What changed from one run to another: verdicts, and figures of the same promise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

RANK = {"passed": 0, "unknown": 1, "failed": 2}
NOTABLE = 0.2
"""A figure that moved by less than a fifth is noise between two runs of one machine."""


@dataclass(frozen=True)
class Change:
    """One promise of one row, before and after; a verdict of None: it was not there."""

    row: str
    promise: str
    unit: str
    before: Any
    after: Any
    verdict_before: str | None
    verdict_after: str | None

    @property
    def worse(self) -> bool:
        """It passed, and does not any more; or it failed and was unknown; or it is new and did not pass."""
        if self.verdict_after is None:
            return False
        return RANK[self.verdict_after] > RANK[self.verdict_before or "passed"]

    @property
    def ratio(self) -> float | None:
        """After over before; None unless both are positive numbers."""
        if not (_is_number(self.before) and _is_number(self.after)) or self.before <= 0 or self.after <= 0:
            return None
        return float(self.after / self.before)

    @property
    def notable(self) -> bool:
        """The verdict changed, or the figure moved by more than :data:`NOTABLE`."""
        moved = self.ratio is not None and abs(self.ratio - 1) > NOTABLE
        return moved or self.verdict_before != self.verdict_after


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[Change]:
    """All promises of rows that both runs have, and the rows that only one has, in the order of the runs. Both are
    objects of ``--json`` (format 1)."""
    old = {row["row"]: row for row in before["rows"]}
    new = {row["row"]: row for row in after["rows"]}
    changes = []
    for name in dict.fromkeys([*old, *new]):
        if name not in old or name not in new:
            verdicts = (old.get(name, {}).get("verdict"), new.get(name, {}).get("verdict"))
            changes.append(Change(name, "the whole row", "", None, None, *verdicts))
            continue
        changes += _of_row(name, old[name], new[name])
    return changes


def _of_row(name: str, old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    before, after = _by_name(old), _by_name(new)
    changes = []
    for key in dict.fromkeys([*before, *after]):
        a, b = before.get(key, {}), after.get(key, {})
        verdicts = (a.get("verdict"), b.get("verdict"))
        unit = b.get("unit") or a.get("unit", "")
        changes.append(Change(name, _label(key), unit, a.get("measured"), b.get("measured"), *verdicts))
    if not changes:
        changes.append(Change(name, "the whole row", "", None, None, old["verdict"], new["verdict"]))
    return changes


def _by_name(row: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """Several promises of a row may have one name; the n-th belongs to the n-th."""
    seen: Counter[str] = Counter()
    found = {}
    for promise in row["promises"]:
        found[promise["name"], seen[promise["name"]]] = promise
        seen[promise["name"]] += 1
    return found


def _label(key: tuple[str, int]) -> str:
    return key[0] if not key[1] else f"{key[0]} ({key[1] + 1})"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
