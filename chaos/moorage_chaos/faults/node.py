"""Faults of nodes, and evictions; only on Kubernetes."""

from __future__ import annotations

import time

from moorage_chaos.cluster import on_cluster
from moorage_chaos.drivers.base import Driver, Evidence, Place
from moorage_chaos.faults.base import Fault


class Evict(Fault):
    """Ask the API to evict the pod; ``granted`` False in the proof: a disruption budget said no. ``at``: how many
    replicas there are, for checkers."""

    kind = "evict"

    def __init__(self, place: Place, *, at: int) -> None:
        self._place, self._id, self._at = place, place.id, at

    @property
    def target(self) -> str:
        return self._id

    async def inject(self, driver: Driver) -> Evidence:
        began = time.monotonic_ns()
        evidence = await on_cluster(driver).evict(self._place)
        if evidence is None:
            return Evidence(began, self.kind, self._id, {"granted": False, "at": self._at})
        return Evidence(
            evidence.t_ns, self.kind, self._id, {**evidence.proof, "granted": True, "at": self._at}
        )

    async def undo(self, driver: Driver) -> None:
        return


class _OfNode(Fault):
    def __init__(self, node: str) -> None:
        self._node = node

    @property
    def target(self) -> str:
        return self._node


class Cordon(_OfNode):
    """The node takes no new pods; undo uncordons."""

    kind = "cordon"

    async def inject(self, driver: Driver) -> Evidence:
        return await on_cluster(driver).admin.cordon(self._node)

    async def undo(self, driver: Driver) -> None:
        await on_cluster(driver).admin.uncordon(self._node)


class CutNode(_OfNode):
    """The node's network is gone, its pods run on; undo brings it back and waits until it is Ready."""

    kind = "cut-node"

    async def inject(self, driver: Driver) -> Evidence:
        return await on_cluster(driver).admin.cut_node(self._node)

    async def undo(self, driver: Driver) -> None:
        await on_cluster(driver).admin.mend_node(self._node)
