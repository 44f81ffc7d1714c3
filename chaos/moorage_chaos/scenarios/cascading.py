"""Three replicas, one after the other, are killed under a steady call."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos import ours
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import fault_happened, killed
from moorage_chaos.checkers.ends import last_ok, typed_ends
from moorage_chaos.drivers.base import Can
from moorage_chaos.faults.process import Kill
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._common import replicas
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

METHOD = "cascade:echo"
KILLS = 3
APART_S = 10.0
EVERY_MS = 500
DOWN_S = 2.0


class Cascading(Scenario):
    name = "cascading"
    promise = "3 random kills 10 s apart under a call each 500 ms: every call accounted for, the last 5 ok"
    safe = False
    lane: ClassVar[Lane] = "calm"
    needs: ClassVar[frozenset[Can]] = frozenset({"kill"})
    mutants: ClassVar[tuple[str, ...]] = ("hang-call",)

    async def run(self, ctx: Context) -> None:
        clients, account = ctx.clients, ctx.clients.account()
        daemon = await ours.daemon(clients, account, METHOD)
        caller = await ours.caller(clients, account)

        async def call(n: int) -> None:
            await caller.invoke(METHOD, target=daemon, sleep_ms=200, timeout_ms=8000, group="call")

        async def kills() -> None:
            for i in range(KILLS):
                await asyncio.sleep(2.0 if i == 0 else APART_S - DOWN_S)
                kill = Kill(ctx.random.choice(replicas(ctx.driver)))
                await ctx.faults.inject(kill)
                await asyncio.sleep(DOWN_S)
                await ctx.faults.undo(kill)

        total_ms = (2.0 + APART_S * (KILLS - 1) + DOWN_S + 5.0) * 1000
        async with asyncio.TaskGroup() as group:
            group.create_task(play(every(EVERY_MS, total_ms), call))
            group.create_task(kills())

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                fault_happened(Kill.kind, KILLS, killed),
                typed_ends(lost_callers=True, group="call"),
                last_ok("last 5 calls", 5, group="call"),
            ),
        )
