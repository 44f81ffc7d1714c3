"""Did the row do what it says? Each of these ends ``unknown``, never ``failed``, when it did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from moorage_chaos.checkers.base import Checker, select
from moorage_chaos.history import History, Pair
from moorage_chaos.verdict import Promise


def bit(name: str, bar: str, measured: Any, unit: str, good: bool, why: str = "") -> Promise:
    """A bite condition as a promise."""
    return Promise(f"bite: {name}", bar, measured, unit, "passed" if good else "unknown", why)


def crossing(expected: int, **match: Any) -> Checker:
    """At least ``expected`` of the selected calls were answered by a daemon on another replica than the
    caller's.

    Judged by the ids that both sides got from their servers' CONNECT packets. Calls that were not answered
    count by the target's replica at the invoke.
    """

    def check_crossing(history: History) -> Iterator[Promise]:
        pairs = select(history, **match)
        across = [p for p in pairs if _target_replica(p) not in (None, "", p.value.get("callerReplica"))]
        yield bit(
            "calls across replicas",
            f">= {expected}",
            len(across),
            f"of {len(pairs)}",
            len(across) >= expected,
        )

    return check_crossing


def _target_replica(pair: Pair) -> Any:
    return pair.result.get("byReplica") or pair.value.get("targetReplica")


def fault_happened(
    kind: str, count: int, proof: Callable[[dict[str, Any]], bool] = lambda proof: True
) -> Checker:
    """``count`` faults of ``kind`` were injected and the driver's own evidence satisfies ``proof``."""

    def check_fault_happened(history: History) -> Iterator[Promise]:
        pairs = select(history, "fault", kind=kind)
        good = [p for p in pairs if p.phase == "ok" and proof(p.result.get("proof", {}))]
        yield bit(
            kind,
            f">= {count}",
            len(good),
            "faults",
            len(good) >= count,
            "" if len(good) == len(pairs) else f"{len(pairs) - len(good)} without proof",
        )

    return check_fault_happened


def killed(proof: dict[str, Any]) -> bool:
    """The process died of SIGKILL."""
    return proof.get("exitCode") in (-9, 137)


def in_flight(kind: str, at_least: int, **match: Any) -> Checker:
    """At every fault of ``kind`` at least ``at_least`` calls were in flight to a target on the replica that
    it hit.
    """

    def check_in_flight(history: History) -> Iterator[Promise]:
        calls = select(history, **match)
        counts = []
        for fault in select(history, "fault", kind=kind):
            moment = int(fault.result.get("tNs", fault.t0))
            victim = fault.value.get("replica")
            counts.append(
                sum(
                    p.value.get("targetReplica") == victim and p.t0 < moment < (p.t1 or moment + 1)
                    for p in calls
                )
            )
        worst = min(counts, default=0)
        yield bit(f"calls in flight at each {kind}", f">= {at_least}", worst, "calls", worst >= at_least)

    return check_in_flight


def reached(name: str, bar: float, unit: str, measure: Callable[[History], float]) -> Checker:
    """The load reached ``bar``."""

    def check_reached(history: History) -> Iterator[Promise]:
        value = measure(history)
        yield bit(name, f">= {bar:g}", round(value, 2), unit, value >= bar)

    return check_reached
