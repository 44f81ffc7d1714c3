"""Faults of the network, in the pod's own network namespace: rules that the node helper sets there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from moorage_chaos.drivers.base import DriverError, Evidence
from moorage_chaos.drivers.kubernetes_doors import Doors
from moorage_chaos.drivers.kubernetes_hands import Hands, Side
from moorage_chaos.drivers.kubernetes_pods import Pod
from moorage_chaos.front_control import FrontControl


class PodLinks:
    """Meets :class:`moorage_chaos.drivers.base.Links`. kubelet's probes pass the same way and are hit, too, as by a
    real failure of the pod's network: after 2 s of it the pod is not ready. Packets are swallowed, so that TCP sends
    them again when the link heals, and connections that nobody gave up go on."""

    def __init__(self, hands: Hands, pod_of: Callable[[str], Pod], doors: Doors) -> None:
        self._hands = hands
        self._doors = doors
        self._pod_of = pod_of
        self._hit: dict[str, Pod] = {}
        """Link -> the pod that its present fault is in."""

    def _door(self, link: str) -> FrontControl | None:
        return self._doors.links if link in self._doors.names else None

    def _target(self, link: str) -> tuple[Pod, Side]:
        name, _, kind = link.partition(":")
        return self._pod_of(name), "redis" if kind == "redis" else "client"

    async def _fault(self, link: str, kind: str, do: str, **fields: str | float) -> Evidence:
        pod, side = self._target(link)
        if do != "cut":
            self._hit[link] = pod
        seen = await self._hands.link(pod, side, do, **fields)
        return Evidence(seen.t_ns, f"link-{kind}", link, seen.proof)

    async def cut(self, link: str) -> Evidence:
        if (door := self._door(link)) is not None:
            return await door.cut(link)
        return await self._fault(link, "cut", "cut")

    async def refuse(self, link: str) -> Evidence:
        if (door := self._door(link)) is not None:
            return await door.refuse(link)
        return await self._fault(link, "refuse", "refuse")

    async def freeze(self, link: str) -> Evidence:
        if (door := self._door(link)) is not None:
            return await door.freeze(link)
        return await self._fault(link, "freeze", "drop")

    async def blackhole(self, link: str, direction: Literal["both", "up", "down"] = "both") -> Evidence:
        if (door := self._door(link)) is not None:
            return await door.blackhole(link, direction)
        return await self._fault(link, "blackhole", "drop", direction=direction)

    async def slow(self, link: str, *, delay_ms: float = 0, bytes_per_s: int = 0) -> Evidence:
        if (door := self._door(link)) is not None:
            return await door.slow(link, delay_ms=delay_ms, bytes_per_s=bytes_per_s)
        return await self._fault(link, "slow", "slow", delayMs=delay_ms, bytesPerS=bytes_per_s)

    async def heal(self, link: str) -> None:
        if (door := self._door(link)) is not None:
            await door.heal(link)
            return
        pod = self._hit.get(link)
        if pod is None:
            return
        side: Side = "redis" if link.endswith(":redis") else "client"
        if not pod.going:
            try:
                await self._hands.link(pod, side, "heal")
            except DriverError:
                if not pod.going:
                    raise
        self._hands.done(f"link:{pod.uid}:{side}")  # with the pod its network namespace is gone
        self._hit.pop(link, None)

    async def heal_all(self) -> None:
        for link in list(self._hit):
            await self.heal(link)
        for name in self._doors.names:
            await self.heal(name)

    async def connections(self, link: str) -> int:
        if (door := self._door(link)) is not None:
            return await door.connections(link)
        pod, side = self._target(link)
        seen = await self._hands.look(pod, side)
        if seen["connections"] is None:
            raise DriverError(f"the connections of {link} cannot be seen")
        return int(seen["connections"])
