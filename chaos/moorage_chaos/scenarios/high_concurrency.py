"""Many calls in one moment."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.checkers.latency import batch_duration
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

DAEMONS, CALLERS = 50, 5


class HighConcurrency(Scenario):
    name = "high-concurrency"
    promise = "50 daemons x 5 callers = 250 calls at once: 250/250 within 0.5 s"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("hang-call",)

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        account = ctx.clients.account()
        daemons = await together(
            ctx.clients.daemon(account, f"many:{i}", where=places[i % len(places)]) for i in range(DAEMONS)
        )
        callers = await together(ctx.clients.caller(account, places[i % len(places)]) for i in range(CALLERS))
        await together(
            caller.call(f"many:{i}", target=daemon, timeout_ms=5000, group="all", batch=1)
            for i, daemon in enumerate(daemons)
            for caller in callers
        )

    def check(self, history: History) -> list[Promise]:
        total = DAEMONS * CALLERS
        return judge(
            history,
            (
                crossing(total // 2, group="all"),
                all_ok("calls", total, group="all"),
                batch_duration("all calls", 500.0, "batch", group="all"),
            ),
        )
