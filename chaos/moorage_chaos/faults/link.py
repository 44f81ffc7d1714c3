"""Faults of the network: a link is ``replica.link`` (its clients) or ``f"{replica.link}:redis"``."""

from __future__ import annotations

from typing import Literal

from moorage_chaos.drivers.base import Driver, Evidence
from moorage_chaos.faults.base import Fault


class _OfLink(Fault):
    def __init__(self, link: str) -> None:
        self._link = link

    @property
    def target(self) -> str:
        return self._link

    async def undo(self, driver: Driver) -> None:
        await driver.links.heal(self._link)


class Cut(_OfLink):
    """Every connection is reset once; new ones are accepted at once."""

    kind = "link-cut"

    async def inject(self, driver: Driver) -> Evidence:
        return await driver.links.cut(self._link)

    async def undo(self, driver: Driver) -> None:
        return


class Down(_OfLink):
    """Every connection is reset, and so is each new one until the undo."""

    kind = "link-down"

    async def inject(self, driver: Driver) -> Evidence:
        await driver.links.refuse(self._link)
        cut = await driver.links.cut(self._link)
        return Evidence(cut.t_ns, self.kind, self._link, cut.proof)


class Freeze(_OfLink):
    """Nothing is forwarded, nothing is lost: connections stay open and go on at the undo."""

    kind = "link-freeze"

    async def inject(self, driver: Driver) -> Evidence:
        return await driver.links.freeze(self._link)


class Blackhole(_OfLink):
    """What is sent is swallowed, ends of connections too; ``up`` is towards the server, ``down`` the way back."""

    kind = "link-blackhole"

    def __init__(self, link: str, direction: Literal["both", "up", "down"] = "both") -> None:
        super().__init__(link)
        self._direction: Literal["both", "up", "down"] = direction

    async def inject(self, driver: Driver) -> Evidence:
        return await driver.links.blackhole(self._link, self._direction)


class Slow(_OfLink):
    """``delay_ms`` more each way, and at most ``bytes_per_s`` each way (0: no limit)."""

    kind = "link-slow"

    def __init__(self, link: str, *, delay_ms: float = 0, bytes_per_s: int = 0) -> None:
        super().__init__(link)
        self._delay_ms = delay_ms
        self._bytes_per_s = bytes_per_s

    async def inject(self, driver: Driver) -> Evidence:
        return await driver.links.slow(self._link, delay_ms=self._delay_ms, bytes_per_s=self._bytes_per_s)
