"""What the daemons' own journals say: no run twice, and ``delivered`` as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from moorage_chaos.checkers.base import Checker, held, select
from moorage_chaos.checkers.ends import end_of
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def at_most_once(**match: Any) -> Checker:
    """No call was run by a daemon more than once, and no run belongs to a call that was never made."""

    def check_at_most_once(history: History) -> Iterator[Promise]:
        calls = {pair.invoke.id for pair in select(history)}
        runs = Counter(pair.value.get("call") for pair in select(history, "run", **match))
        doubled = {call: n for call, n in runs.items() if n > 1}
        strange = [call for call in runs if call not in calls]
        why = "; ".join(
            part
            for part in (
                f"run more than once: {doubled}" if doubled else "",
                f"runs of unknown calls: {strange}" if strange else "",
            )
            if part
        )
        measured = len(doubled) + len(strange)
        yield Promise("runs per call", "at most 1", measured, "violations", held(not measured), why)

    return check_at_most_once


def delivered_honest(**match: Any) -> Checker:
    """``delivered`` "no" means no daemon ever ran the call, "yes" that one did; "unknown" claims nothing.

    A success is a claim too: it must have been run. Calls for which the journal cannot speak (``journal:
    False`` in the invoke: a target that records nothing) are left out.
    """

    def check_delivered_honest(history: History) -> Iterator[Promise]:
        ran = {pair.value.get("call") for pair in select(history, "run")}
        lies, judged = [], 0
        for pair in select(history, **match):
            if pair.end is None or pair.value.get("journal") is False:
                continue
            said = "yes" if pair.phase == "ok" else pair.result.get("delivered")
            if said not in ("yes", "no"):
                continue
            judged += 1
            if (said == "yes") != (pair.invoke.id in ran):
                lies.append(f"call {pair.invoke.id} ended {end_of(pair)}, delivered {said}")
        yield Promise(
            "delivered is honest",
            "0 lies",
            len(lies),
            "lies",
            held(not lies),
            "; ".join(lies[:5]) or f"{judged} claims judged",
        )

    return check_delivered_honest


def no_late_runs(**match: Any) -> Checker:
    """No run of a selected call begins after the call ended."""

    def check_no_late_runs(history: History) -> Iterator[Promise]:
        ends = {pair.invoke.id: pair.t1 for pair in select(history, **match)}
        late = [
            run.value["call"]
            for run in select(history, "run")
            if (end := ends.get(run.value.get("call"))) is not None and run.t0 > end
        ]
        yield Promise(
            "runs begun after the call's end",
            "0",
            len(late),
            "runs",
            held(not late, bool(ends)),
            f"calls {late[:5]}" if late else "",
        )

    return check_no_late_runs
