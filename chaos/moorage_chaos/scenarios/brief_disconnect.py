"""A daemon is away for 1.5 s; the call issued meanwhile is answered as soon as it is back."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.checkers.recovery import after_registration
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

AWAY_S = 1.5
ROUNDS = 10


class BriefDisconnect(Scenario):
    name = "brief-disconnect"
    promise = "a call issued while the daemon is away for 1.5 s succeeds within 50 ms of its return"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("no-grace", "slow-grace")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)

        async def one(i: int) -> None:
            account = ctx.clients.account()
            method = f"brief:{i}"
            here, there = places[i % len(places)], places[(i + 1) % len(places)]
            daemon = await ctx.clients.daemon(account, method, where=here)
            caller = await ctx.clients.caller(account, there)
            # Apart, so that ten returns do not measure each other.
            await asyncio.sleep(i * 0.1)
            await daemon.close()
            call = ctx.clients.start(caller.call(method, target=daemon, timeout_ms=10_000, group="call"))
            await asyncio.sleep(AWAY_S)
            await daemon.connect(here)
            await call

        await together(one(i) for i in range(ROUNDS))

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                all_ok("calls", ROUNDS, group="call"),
                after_registration("answer after the registration", 50.0, group="call"),
            ),
        )
