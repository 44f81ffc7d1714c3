"""Ten daemons arrive at once and are all called at once, before and after they have settled."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.client import Client
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

DAEMONS = 10


class RapidSessions(Scenario):
    name = "rapid-sessions"
    promise = "10 daemons at once, one caller calls all of them at once, twice: 20/20"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("lose-registration", "no-grace")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        account = ctx.clients.account()
        caller = await ctx.clients.caller(account, places[0])
        daemons = [
            ctx.clients.client(account, "daemon", clientType="session-scoped", sessionId=f"s{i}")
            for i in range(DAEMONS)
        ]

        async def arrive(i: int, daemon: Client) -> None:
            await daemon.connect(places[i % len(places)])
            daemon.register(f"rapid:{i}")

        arrivals = [ctx.clients.start(arrive(i, daemon)) for i, daemon in enumerate(daemons)]
        for which in ("arriving", "settled"):
            await together(caller.call(f"rapid:{i}", timeout_ms=5000, group=which) for i in range(DAEMONS))
        await together(arrivals)

    def check(self, history: History) -> list[Promise]:
        return judge(history, (all_ok("calls", 2 * DAEMONS, group=("arriving", "settled")),))
