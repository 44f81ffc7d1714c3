"""What becomes of the tasks of a worker that is killed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from moorage_chaos.checkers.base import Checker, held, judge_quantile, select
from moorage_chaos.checkers.bite import bit
from moorage_chaos.checkers.logged import number
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise


@dataclass
class Broken:
    """A step that a kill interrupted: it had begun, and its end was not reported."""

    session: str
    key: str
    killed: int
    """Monotonic ns."""
    again: list[Pair] = field(default_factory=list)
    """What another worker reported in that session afterwards."""


def broken_steps(history: History) -> list[Broken]:
    """Of all workers that were killed or stopped; steps are told by their ``key``."""
    kills = [p for p in select(history, "fault", kind=("kill", "pause")) if p.phase == "ok"]
    steps: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for pair in select(history, "append"):
        if pair.value.get("worker"):
            steps[pair.value["session"], str(pair.value["worker"])].append(pair)
    found = []
    for kill in kills:
        moment, victim = int(kill.result.get("tNs", kill.t0)), kill.value.get("replica")
        for (session, worker), pairs in steps.items():
            last = pairs[-1]
            # An odd number of reports of a key: its begin without its end.
            if (
                worker == victim
                and last.value["key"]
                and last.t0 < moment
                and _open(pairs, last.value["key"])
            ):
                broken = Broken(session, str(last.value["key"]), moment)
                for (other, name), more in steps.items():
                    if other == session and name != worker:
                        broken.again += [p for p in more if p.t0 > moment]
                found.append(broken)
    return found


def _open(pairs: list[Pair], key: str) -> bool:
    return len([pair for pair in pairs if pair.value["key"] == key]) % 2 == 1


def interrupted_steps(at_least: int) -> Checker:
    """The kills met steps that were under way."""

    def check_interrupted_steps(history: History) -> Iterator[Promise]:
        count = len(broken_steps(history))
        yield bit("steps under way at a kill", f">= {at_least}", count, "steps", count >= at_least)

    return check_interrupted_steps


def taken_over(bar_s: float) -> Checker:
    """Another worker reports in each such session again, within ``bar_s``, and the step has the same key there."""

    def check_taken_over(history: History) -> Iterator[Promise]:
        steps = broken_steps(history)
        taken = [step for step in steps if step.again]
        same = sum(any(pair.value["key"] == step.key for pair in step.again) for step in steps)
        total = len(steps)
        known = total > 0
        yield Promise("tasks taken over", f"{total}/{total}", f"{len(taken)}/{total}", "tasks",
                      held(len(taken) == total, known))  # fmt: skip
        yield Promise("steps that ran again under their key", f"{total}/{total}", f"{same}/{total}", "steps",
                      held(same == total, known))  # fmt: skip
        spans = [(step.killed, min(pair.t0 for pair in step.again)) for step in taken]
        yield judge_quantile(
            history, "from the kill to the next worker's first report", spans, 1.0, bar_s * 1000
        )

    return check_taken_over


def one_result_each(expected: int) -> Checker:
    """One ``task_result`` was logged in each session, whatever attempts there were."""

    def check_one_result_each(history: History) -> Iterator[Promise]:
        results = Counter(
            pair.value["session"]
            for pair in select(history, "append", type="task_result")
            if pair.result.get("id") is not None
        )
        one = sum(n == 1 for n in results.values())
        yield Promise("sessions with one task_result", f"{expected}/{expected}", f"{one}/{len(results)}", "sessions",
                      held(one == len(results), len(results) >= expected))  # fmt: skip

    return check_one_result_each


def only_latest_attempt() -> Checker:
    """In each session nothing of an older attempt is logged behind something of a newer one."""

    def check_only_latest_attempt(history: History) -> Iterator[Promise]:
        found: dict[str, list[tuple[tuple[int, int], int]]] = defaultdict(list)
        for pair in select(history, "append"):
            if pair.value.get("attempt") is not None and pair.result.get("id") is not None:
                place = number(pair.result["id"]), int(pair.value["attempt"])
                found[pair.value["session"]].append(place)
        late = compared = 0
        for places in found.values():
            numbers = [attempt for _, attempt in sorted(places)]
            compared += max(numbers) > 1
            late += sum(b < a for a, b in pairwise(numbers))
        yield Promise("events of an attempt that was over", "0", late, f"in {compared} tasks taken over",
                      held(not late, compared > 0))  # fmt: skip

    return check_only_latest_attempt
