"""The operator dies; only on Kubernetes."""

from __future__ import annotations

from moorage_chaos.cluster import on_cluster
from moorage_chaos.drivers.base import Driver, Evidence
from moorage_chaos.faults.base import Fault


class KillOperator(Fault):
    """SIGKILL of the operator's process, then its pod is deleted, so that kubelet's back-off does not count; the
    Deployment makes the next one. ``step`` is what it was doing, for the history."""

    kind = "kill-operator"

    def __init__(self, step: str) -> None:
        self._step = step

    @property
    def target(self) -> str:
        return f"operator at {self._step}"

    async def inject(self, driver: Driver) -> Evidence:
        evidence = await on_cluster(driver).admin.kill_operator()
        return Evidence(evidence.t_ns, self.kind, self.target, evidence.proof)

    async def undo(self, driver: Driver) -> None:
        return
