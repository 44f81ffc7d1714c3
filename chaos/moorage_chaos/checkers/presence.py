"""``GET /v1/presence`` says what is so, on every replica."""

from __future__ import annotations

from collections.abc import Iterator

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def answers_right(cases: int) -> Checker:
    """In at least ``cases`` cases every replica gave the expected answer."""

    def check_answers_right(history: History) -> Iterator[Promise]:
        asked: dict[str, list[bool]] = {}
        wrong = []
        for pair in select(history, "presence"):
            good = pair.phase == "ok" and pair.result.get("active") is pair.value["expected"]
            asked.setdefault(pair.value["case"], []).append(good)
            if not good:
                wrong.append(f"{pair.value['case']} on {pair.value['link']}: {pair.result}")
        right = sum(all(answers) for answers in asked.values())
        yield Promise(
            "cases right on every replica",
            f">= {cases}",
            f"{right}/{len(asked)}",
            "cases",
            held(not wrong, len(asked) >= cases),
            "; ".join(wrong[:5]),
        )

    return check_answers_right


def no_flap(case: str, rounds: int) -> Checker:
    """While a newer active socket lives, no answer says otherwise."""

    def check_no_flap(history: History) -> Iterator[Promise]:
        pairs = select(history, "presence", case=case)
        flaps = sum(pair.result.get("active") is not True for pair in pairs)
        yield Promise("flaps", "0", flaps, f"of {len(pairs)} answers", held(not flaps, len(pairs) >= rounds))

    return check_no_flap
