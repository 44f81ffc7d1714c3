"""Faults of the Redis that all replicas share."""

from __future__ import annotations

from moorage_chaos.drivers.base import Driver, Evidence
from moorage_chaos.faults.base import Fault


class Kill(Fault):
    """SIGKILL; undo starts it again on its port, with its data (``keep``, needs ``Setup(redis_keep=True)``) or
    wiped."""

    kind = "redis-kill"

    def __init__(self, *, keep: bool = False) -> None:
        self._keep = keep

    @property
    def target(self) -> str:
        return "redis"

    async def inject(self, driver: Driver) -> Evidence:
        return await driver.redis.kill()

    async def undo(self, driver: Driver) -> None:
        if not driver.redis.up:
            await driver.redis.start(keep=self._keep)


class Pause(Fault):
    """SIGSTOP: connections stay open, nothing answers; undo SIGCONT."""

    kind = "redis-pause"

    @property
    def target(self) -> str:
        return "redis"

    async def inject(self, driver: Driver) -> Evidence:
        return await driver.redis.pause()

    async def undo(self, driver: Driver) -> None:
        await driver.redis.resume()
