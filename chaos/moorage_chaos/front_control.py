"""The harness's side of the front: starts its process, speaks its JSON lines, and is the driver's
``links``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from moorage_chaos.drivers.base import Evidence
from moorage_chaos.drivers.helper import Helper
from moorage_chaos.drivers.namespaces import Namespaces


class FrontControl:
    """One front process. Every request raises :class:`DriverError` if the front does not answer or says
    no.
    """

    def __init__(
        self,
        on_ready: Callable[[str, bool, int], None] | None = None,
        namespaces: Namespaces | None = None,
    ) -> None:
        """``on_ready(link, ready, t_ns)`` is called when a member's readiness changes. Links that are wires of
        ``namespaces`` lose packets in the kernel."""
        self._on_ready = on_ready
        self._wires = namespaces
        self._helper = Helper("the front", self._told)
        self.request = self._helper.request
        self.stop = self._helper.stop

    async def start(self, log: Path) -> None:
        """Start the process; what it complains about goes to ``log``."""
        await self._helper.start("moorage_chaos.front", (), log)

    def _told(self, message: dict[str, Any]) -> None:
        if self._on_ready is not None:
            self._on_ready(message["name"], message["ready"], message["t"])

    # -- building --------------------------------------------------------------------------------------
    async def service(self) -> int:
        """Open the Service's port."""
        return int((await self.request("service"))["port"])

    async def link(self, name: str, target: tuple[str, int], *, member: bool = False) -> int:
        """Make a link, or give it a new target; returns its port, which stays. ``member``: of the Service."""
        return int((await self.request("link", name=name, target=list(target), member=member))["port"])

    async def status(self) -> dict[str, dict[str, Any]]:
        """``{link: {"connections", "accepted", "ready", "mode"}}``."""
        links: dict[str, dict[str, Any]] = (await self.request("status"))["links"]
        for name, wire in (self._wires.wires if self._wires is not None else {}).items():
            if wire.cut:
                links[name] = {**links.get(name, {}), "mode": "blackhole"}
        return links

    # -- drivers.base.Links ----------------------------------------------------------------------------
    async def _fault(self, link: str, do: str, **fields: Any) -> Evidence:
        answer = await self.request("fault", name=link, do=do, **fields)
        return Evidence(answer["t"], f"link-{do}", link, {"connections": answer["connections"], **fields})

    async def cut(self, link: str) -> Evidence:
        return await self._fault(link, "cut")

    async def refuse(self, link: str) -> Evidence:
        return await self._fault(link, "refuse")

    async def freeze(self, link: str) -> Evidence:
        return await self._fault(link, "freeze")

    async def blackhole(self, link: str, direction: Literal["both", "up", "down"] = "both") -> Evidence:
        if self._wires is not None and link in self._wires.wires:
            return await self._wires.lose(link, direction)
        return await self._fault(link, "blackhole", direction=direction)

    async def slow(self, link: str, *, delay_ms: float = 0, bytes_per_s: int = 0) -> Evidence:
        return await self._fault(link, "slow", delay_ms=delay_ms, bytes_per_s=bytes_per_s)

    async def heal(self, link: str) -> None:
        wire = self._wires.wires.get(link) if self._wires is not None else None
        if wire is not None:
            await wire.heal()
        if wire is None or not wire.server_outside:  # the front has no link where a wire leads to Redis
            await self._fault(link, "heal")

    async def connections(self, link: str) -> int:
        return int((await self.status())[link]["connections"])
