"""A small history with one of everything that the page shows."""

from __future__ import annotations

from itertools import count
from typing import Any

from moorage_chaos.history import History
from moorage_chaos.results import as_json
from moorage_chaos.verdict import Promise, row_result

MS = 1_000_000


class Story:
    """A history whose clock is set by hand, in milliseconds."""

    def __init__(self, **header: Any) -> None:
        self.ms = 0.0
        self.history = History(
            {"row": "a-row", "promise": "p", **header}, now=lambda: 1_000_000_000 + int(self.ms * MS)
        )
        self._calls = count(1)

    def at(self, ms: float) -> Story:
        self.ms = ms
        return self

    def call(self, ms: float, took: float | None, code: str = "ok", **value: Any) -> int | None:
        """A call begun at ``ms``; without ``took`` it never ends."""
        operation = self.at(ms).history.begin("call", process="caller", caller="caller", method="m", **value)
        if took is not None:
            self.ms = ms + took
            if code == "ok":
                operation.ok(answered=operation.id)
            else:
                operation.info(code=code)
        return operation.id

    def fault(self, ms: float, kind: str, target: str, lasts: float | None = None, **proof: Any) -> None:
        self.at(ms)
        operation = self.history.begin("fault", kind=kind, replica=target)
        operation.ok(tNs=self.history.now(), proof=proof)
        if lasts is not None:
            self.ms = ms + lasts
            self.history.begin("undo", kind=kind, replica=target).ok()


def whole() -> History:
    story = Story(replicas=["replica-1-aa", "replica-2-bb"])
    h = story.history
    for name, replica in (("caller", "replica-1-aa"), ("target", "replica-2-bb")):
        h.begin("connect", process=name, client=name, scope="user-scoped").ok(replica=replica)
    h.begin("register", process="target", client="target", method="m", replica="replica-2-bb").ok()
    for n in range(20):
        story.call(n * 10, 1.5, target="target", targetReplica="replica-2-bb")
    story.call(250, 62, "target_disconnected", target="target", targetReplica="replica-2-bb")
    story.call(255, None, target="target", targetReplica="replica-2-bb")
    story.fault(300, "kill", "replica-2-bb", lasts=200, exitCode=-9)
    h.note("death", t=1_000_000_000 + 301 * MS, replica="replica-2-bb", link="replica-2", code=-9)
    h.note("down", t=1_000_000_000 + 302 * MS, client="target", replica="replica-2-bb", cause="transport")
    h.note("alive", t=1_000_000_000 + 480 * MS, replica="replica-2-cc", link="replica-2")
    story.at(600)
    emit = h.begin("emit", event="update", expect=["caller", "target"])
    emit.ok(seq=1)
    h.note("received", client="caller", event="update", mark=emit.id, seq=1)
    h.note("received", client="caller", event="update", mark=emit.id, seq=1)
    story.at(700).history.note("outcome", seconds=0.7, played=True, trouble=[])
    return h


def run_of(mutant: str | None = None) -> dict[str, Any]:
    promises = [
        Promise("end after the cut p50", "<= 50", 12.0, "ms", "passed"),
        Promise(
            "calls <script>alert(1)</script>", "70/70", "69/70", "calls", "failed", "timeout x1 </script>"
        ),
    ]
    rows = [row_result("a-row", 0.7, promises, mutants=["hang-call"]), row_result("no-history", 0.1, [])]
    return as_json(
        rows,
        seed=7,
        driver="local",
        replicas=2,
        started_at="2026-01-01T00:00:00+00:00",
        versions={"python": "3.11"},
        mutant=mutant,
        replay="./run_all.py --seed 7 --only a-row,no-history",
    )
