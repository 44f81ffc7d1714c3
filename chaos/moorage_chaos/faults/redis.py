"""Faults of the Redis that all replicas share."""

from __future__ import annotations

import time
from typing import Literal

from moorage_chaos.drivers.base import Driver, DriverError, Evidence
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


class KillClients(Fault):
    """Redis ends every connection of one type, once, but the one that says so; new ones are accepted at once."""

    kind = "redis-kill-clients"

    def __init__(self, of: Literal["pubsub", "normal"]) -> None:
        self._of = of

    @property
    def target(self) -> str:
        return f"redis:{self._of}"

    async def inject(self, driver: Driver) -> Evidence:
        import redis.asyncio

        client = redis.asyncio.Redis.from_url(driver.redis.url, socket_timeout=5)
        try:
            t = time.monotonic_ns()
            killed: int = await client.client_kill_filter(_type=self._of, skipme=True)
        except redis.exceptions.RedisError as error:
            raise DriverError(f"CLIENT KILL: {error}") from error
        finally:
            await client.aclose()
        return Evidence(t, self.kind, self.target, {"killed": killed})

    async def undo(self, driver: Driver) -> None:
        return
