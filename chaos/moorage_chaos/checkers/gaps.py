"""What was asked of a log and what it said: the whole rest, or a gap with its reason, never a part."""

from __future__ import annotations

from collections.abc import Iterator

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise


def gaps_said(at_least: int) -> Checker:
    """Each ``resume-from`` ends as its ``expect`` says: a reason (then no event came), or ``none`` (then exactly
    ``count`` did). Where ``missed`` is expected, it is exact."""

    def check_gaps_said(history: History) -> Iterator[Promise]:
        asked = select(history, "resume-from")
        wrong = [pair for pair in asked if _is_wrong(pair)]
        why = "; ".join(
            f"{p.value['way']} {p.value['case']} from {p.value['id']!r}: {p.result}" for p in wrong[:3]
        )
        known = len(asked) >= at_least
        yield Promise(
            "resumes that were asked for", f">= {at_least}", len(asked), "asked", held(known, known)
        )
        yield Promise("gaps with the wrong reason, or a partial replay", "0", len(wrong), f"of {len(asked)}",
                      held(not wrong, bool(asked)), why)  # fmt: skip
        exact = [pair for pair in asked if pair.value.get("missed") is not None]
        off = [pair for pair in exact if pair.result.get("missed") != pair.value["missed"]]
        why = "; ".join(
            f"{p.value['way']}: {p.result.get('missed')} instead of {p.value['missed']}" for p in off[:3]
        )
        yield Promise(
            "gaps with a wrong count", "0", len(off), f"of {len(exact)}", held(not off, bool(exact)), why
        )

    return check_gaps_said


def _is_wrong(pair: Pair) -> bool:
    if pair.phase != "ok":
        return True
    if pair.value["expect"] == "none":
        return bool(pair.result["end"] != "replay_done" or pair.result["events"] != pair.value["count"])
    return bool(pair.result["reason"] != pair.value["expect"] or pair.result["events"] != 0)


def told_of(reason: str, at_least: int) -> Checker:
    """Readers that lost their place were told ``reason`` and found a turn to rebuild from."""

    def check_told_of(history: History) -> Iterator[Promise]:
        notes = history.notes("gap", reason=reason)
        told = {note.value["reader"] for note in notes if note.value.get("turn") is not None}
        yield Promise(f"readers told {reason!r} that rebuilt from the turn", f">= {at_least}", len(told), "readers",
                      held(len(told) >= at_least, bool(history.notes("reader"))))  # fmt: skip

    return check_told_of
