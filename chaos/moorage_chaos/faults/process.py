"""Faults of replicas as processes: killed, ended in good order, rolled, stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from moorage_chaos.drivers.base import Driver, DriverError, Evidence, Place
from moorage_chaos.drivers.procfs import start_time
from moorage_chaos.faults.base import Fault


class _OfReplica(Fault):
    """A fault of one replica or worker. ``target`` is the id of the process that was there when the fault was made."""

    def __init__(self, replica: Place) -> None:
        self.replica = replica
        self._id = replica.id
        self._generation = replica.generation

    @property
    def target(self) -> str:
        return self._id

    async def _bring_back(self, driver: Driver) -> None:
        if self.replica.state == "dead":
            await driver.launch(self.replica, wait=False)
        await driver.wait_ready(self.replica)


class Kill(_OfReplica):
    """SIGKILL. Dead on return (exit code -9); undo launches it under a new id and waits until it is ready."""

    kind = "kill"

    async def inject(self, driver: Driver) -> Evidence:
        return await driver.kill(self.replica)

    async def undo(self, driver: Driver) -> None:
        await self._bring_back(driver)


class Terminate(_OfReplica):
    """SIGTERM, and wait for the end, drain included; undo as for :class:`Kill`."""

    kind = "terminate"

    def __init__(self, replica: Place, timeout_s: float = 30.0) -> None:
        super().__init__(replica)
        self._timeout_s = timeout_s

    async def inject(self, driver: Driver) -> Evidence:
        return await driver.terminate(self.replica, self._timeout_s)

    async def undo(self, driver: Driver) -> None:
        await self._bring_back(driver)


class Pause(_OfReplica):
    """SIGSTOP: the process hangs with all its connections open; undo SIGCONT."""

    kind = "pause"

    async def inject(self, driver: Driver) -> Evidence:
        return await driver.pause(self.replica)

    async def undo(self, driver: Driver) -> None:
        # Another generation means that somebody killed it meanwhile: nothing is left to wake.
        if self.replica.generation == self._generation and self.replica.state == "paused":
            await driver.resume(self.replica)

    def undo_record(self) -> dict[str, Any] | None:
        pid = self.replica.pid
        start = start_time(pid) if pid else 0
        return {"do": "cont", "pid": pid, "start": start} if start else None


class Roll(Fault):
    """Every replica anew, one after the other, as a Deployment does without surge: SIGTERM, wait for the end,
    launch, wait until it is ready. Proof: each exit code and how long each drained."""

    kind = "roll"

    def __init__(self, replicas: Sequence[Place] | None = None, timeout_s: float = 30.0) -> None:
        self._replicas = replicas
        self._timeout_s = timeout_s

    @property
    def target(self) -> str:
        return ",".join(replica.link for replica in self._replicas) if self._replicas else "all"

    async def inject(self, driver: Driver) -> Evidence:
        steps = []
        for replica in list(self._replicas or driver.replicas):
            step = await driver.terminate(replica, self._timeout_s)
            await driver.launch(replica)
            steps.append(step.as_value())
        if not steps:
            raise DriverError("there is no replica to roll")
        return Evidence(steps[0]["tNs"], self.kind, self.target, {"steps": steps})

    async def undo(self, driver: Driver) -> None:
        dead = [replica for replica in driver.replicas if replica.state == "dead"]
        await asyncio.gather(*(driver.launch(replica) for replica in dead))
