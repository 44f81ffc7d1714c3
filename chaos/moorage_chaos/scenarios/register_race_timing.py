"""Calls at many distances from the registration they need."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.history import History
from moorage_chaos.load import at, play
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

DELAYS_MS = (0, 50, 100, 200, 500, 1000, 2000)
ROUNDS = 10


class RegisterRaceTiming(Scenario):
    name = "register-race-timing"
    promise = "10 x callers 0, 50, 100, 200, 500, 1000 and 2000 ms after a registration: 70/70"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("lose-registration", "no-grace")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        account = ctx.clients.account()

        async def one_round(i: int) -> None:
            method = f"race:{i}"
            here, there = places[i % len(places)], places[(i + 1) % len(places)]
            daemon = await ctx.clients.client(
                account, "daemon", clientType="machine-scoped", machineId=f"m{i}"
            ).connect(here)
            callers = await together(ctx.clients.caller(account, there) for _ in DELAYS_MS)
            daemon.register(method)

            async def call(n: int) -> None:
                await callers[n].call(
                    method, target=daemon, timeout_ms=5000, group="call", afterMs=DELAYS_MS[n]
                )

            await play(at(*DELAYS_MS), call)

        await together(one_round(i) for i in range(ROUNDS))

    def check(self, history: History) -> list[Promise]:
        expected = ROUNDS * len(DELAYS_MS)
        return judge(history, (crossing(expected, group="call"), all_ok("calls", expected, group="call")))
