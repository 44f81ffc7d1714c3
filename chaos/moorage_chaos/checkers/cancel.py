"""A cancelled call is cancelled where it runs."""

from __future__ import annotations

from collections.abc import Iterator

from moorage_chaos.checkers.base import Checker, held, judge_quantile, select
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise


def cancel_told(kind: str, expected: int, bar_ms: float) -> Checker:
    """The daemon of every call of ``kind`` was told of the cancellation within ``bar_ms`` and stopped its
    run.

    The moment of cancelling is the last ``cancel`` note of the call's group before the daemon was told.
    """

    def check_cancel_told(history: History) -> Iterator[Promise]:
        runs = {run.value.get("call"): run for run in select(history, "run")}
        told = {
            (note.value["daemon"], note.value["requestId"]): note.t for note in history.notes("cancelled")
        }
        pairs = select(history, kind=kind)
        spans, stopped = [], 0
        for pair in pairs:
            run = runs.get(pair.invoke.id)
            if run is None:
                continue
            moments = [n.t for n in history.notes("cancel", group=pair.value["group"])]
            at = told.get((run.value["daemon"], run.value["requestId"]))
            asked = max((t for t in moments if at is not None and t <= at), default=None)
            if at is not None and asked is not None:
                spans.append((asked, at))
            stopped += bool(run.result.get("cancelled"))
        known = len(pairs) >= expected
        yield Promise(
            f"targets told ({kind})",
            f"{expected}/{expected}",
            f"{len(spans)}/{len(pairs)}",
            "calls",
            held(len(spans) == len(pairs), known),
        )
        yield Promise(
            f"runs stopped ({kind})",
            f"{expected}/{expected}",
            f"{stopped}/{len(pairs)}",
            "runs",
            held(stopped == len(pairs), known),
        )
        yield judge_quantile(history, f"told after the {kind}", spans, 1.0, bar_ms)

    return check_cancel_told
