"""Small rows, one for each way in which a row can end."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import ClassVar

from _rows import Asking

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import fault_happened, killed
from moorage_chaos.drivers.base import Can, Driver, DriverError, Evidence, Setup
from moorage_chaos.faults import process
from moorage_chaos.faults.base import Fault
from moorage_chaos.history import History
from moorage_chaos.scenarios.base import Context, Lane
from moorage_chaos.verdict import Promise


class Good(Asking):
    name = "t-good"
    promise = "every replica answers"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("some-mutant",)


class Idle(Asking):
    name = "t-idle"
    promise = "the same in the other lane"
    safe = True
    lane: ClassVar[Lane] = "idle"


class OnDemand(Asking):
    name = "t-on-demand"
    promise = "the same, only when it is asked for"
    safe = True
    on_demand: ClassVar[bool] = True


class Kills(Asking):
    name = "t-kills"
    promise = "a killed replica comes back"
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"kill"})
    setup: ClassVar[Setup | None] = Setup(replicas=2)

    async def run(self, ctx: Context) -> None:
        await ctx.faults.inject(process.Kill(ctx.driver.replicas[0]))
        ctx.progress("killed")
        await super().run(ctx)


class Breaks(Asking):
    name = "t-breaks"
    promise = "never kept"
    safe = True

    def check(self, history: History) -> list[Promise]:
        return [Promise("kept", "1", 0, "", "failed")]


class Raises(Asking):
    name = "t-raises"
    promise = "cannot be played"
    safe = True

    async def run(self, ctx: Context) -> None:
        raise RuntimeError("no load")


class Hangs(Asking):
    name = "t-hangs"
    promise = "goes over its bound"
    safe = True
    bound_s = 0.2

    async def run(self, ctx: Context) -> None:
        await asyncio.sleep(60)


class Waits(Asking):
    name = "t-waits"
    promise = "waits with a stopped replica until the harness is interrupted"
    safe = False

    async def run(self, ctx: Context) -> None:
        await ctx.faults.inject(process.Pause(ctx.driver.replicas[0]))
        (ctx.folder / "pid").write_text(str(ctx.driver.replicas[0].pid))
        await asyncio.sleep(50)


class Crashes(Asking):
    name = "t-crashes"
    promise = "takes its harness process with it"
    safe = True

    async def run(self, ctx: Context) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Unrestorable(Asking):
    name = "t-unrestorable"
    promise = "leaves a system behind that cannot be restored"
    safe = False

    async def run(self, ctx: Context) -> None:
        async def restore(timeout_s: float = 60.0) -> None:
            raise DriverError("one replica is deaf")

        ctx.driver.restore = restore  # type: ignore[method-assign]
        await super().run(ctx)


class BadCheck(Asking):
    name = "t-bad-check"
    promise = "has a checker that is broken"
    safe = True

    def check(self, history: History) -> list[Promise]:
        raise ZeroDivisionError


class Impossible(Asking):
    name = "t-impossible"
    promise = "needs what no driver can"
    safe = True
    needs: ClassVar[frozenset[Can]] = frozenset({"fly"})  # type: ignore[arg-type]


class Bites(Asking):
    name = "t-bites"
    promise = "is nothing without its fault"
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"kill"})
    mutants: ClassVar[tuple[str, ...]] = ("ignore-fault",)

    async def run(self, ctx: Context) -> None:
        await ctx.faults.inject(process.Kill(ctx.driver.replicas[0]))

    def check(self, history: History) -> list[Promise]:
        return judge(history, (fault_happened(process.Kill.kind, 1, killed),))


class Nothing(Fault):
    """Does nothing, under a number."""

    kind = "nothing"

    def __init__(self, number: int) -> None:
        self._number = number

    @property
    def target(self) -> str:
        return str(self._number)

    async def inject(self, driver: Driver) -> Evidence:
        return Evidence(time.monotonic_ns(), self.kind, self.target)

    async def undo(self, driver: Driver) -> None:
        return


class Shrinks(Asking):
    name = "t-shrinks"
    promise = "is broken by the last of its three faults"
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"kill"})

    async def run(self, ctx: Context) -> None:
        for number in (1, 2, 3):
            await ctx.faults.inject(Nothing(number))

    def check(self, history: History) -> list[Promise]:
        done = [fault.value["replica"] for fault in history.pairs("fault")]
        return [Promise("third", "0", done.count("3"), "", "failed" if "3" in done else "passed")]
