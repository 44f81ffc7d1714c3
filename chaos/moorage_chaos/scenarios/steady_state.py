"""Calls across replicas on a quiet system."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.checkers.latency import median_gap
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

METHOD = "steady:echo"
LIMIT_MS = 5000
PROBES = 100
"""Calls each way behind the comparison of medians; 20 would let one slow call decide."""


class SteadyState(Scenario):
    name = "steady-state"
    promise = (
        "10 callers, 50 parallel and 20 sequential calls across replicas: 70/70, p50 within 1 ms of local"
    )
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("slow-forward",)

    async def run(self, ctx: Context) -> None:
        here, *others = replicas(ctx.driver)
        account = ctx.clients.account()
        daemon = await ctx.clients.daemon(account, METHOD, where=here)
        callers = await together(
            ctx.clients.caller(account, others[i % len(others)], kind="plain" if i % 2 else "raw")
            for i in range(10)
        )
        near = await ctx.clients.caller(account, here)
        await together(
            c.call(METHOD, target=daemon, timeout_ms=LIMIT_MS, group="parallel")
            for c in callers
            for _ in range(5)
        )
        for i in range(20):
            await callers[i % 10].call(METHOD, target=daemon, timeout_ms=LIMIT_MS, group="sequential")
        for _ in range(PROBES):
            await callers[0].call(METHOD, target=daemon, timeout_ms=LIMIT_MS, group="far")
            await near.call(METHOD, target=daemon, timeout_ms=LIMIT_MS, group="near")

    def check(self, history: History) -> list[Promise]:
        both = ("parallel", "sequential")
        return judge(
            history,
            (
                crossing(70, group=both),
                all_ok("calls", 70, group=both),
                all_ok("probes", 2 * PROBES, group=("far", "near")),
                median_gap("p50 across over p50 local", 1.0, {"group": "far"}, {"group": "near"}),
            ),
        )
