"""A daemon registers without waiting, and is called in the same moment."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.checkers.latency import duration
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

ROUNDS = 20


class FireAndForget(Scenario):
    name = "fire-and-forget"
    promise = (
        "20 x a daemon registers without waiting and is called at once from elsewhere: 20/20, p95 <= 50 ms"
    )
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("lose-registration", "no-grace")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        account = ctx.clients.account()
        for i in range(ROUNDS):
            method = f"forget:{i}"
            here, there = places[i % len(places)], places[(i + 1) % len(places)]
            daemon = await ctx.clients.client(
                account, "daemon", clientType="machine-scoped", machineId=f"m{i}"
            ).connect(here)
            caller = await ctx.clients.caller(account, there)
            daemon.register(method)
            await caller.call(method, target=daemon, timeout_ms=5000, group="call")

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                crossing(ROUNDS, group="call"),
                all_ok("calls", ROUNDS, group="call"),
                duration("call", 0.95, 50.0, group="call"),
            ),
        )
