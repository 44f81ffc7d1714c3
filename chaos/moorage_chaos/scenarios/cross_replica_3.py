"""Target and caller provably on different replicas, every ordered pair of three."""

from __future__ import annotations

from itertools import permutations
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing, reached
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

ROUNDS = 20


class CrossReplica3(Scenario):
    name = "cross-replica-3"
    promise = (
        "20 rounds over all ordered pairs of 3 replicas, target and caller provably apart: 20/20 crossing"
    )
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("hang-call", "lose-registration")

    async def run(self, ctx: Context) -> None:
        pairs = list(permutations(replicas(ctx.driver, 3), 2))
        account = ctx.clients.account()
        for i in range(ROUNDS):
            here, there = pairs[i % len(pairs)]
            method = f"cross:{i}"
            daemon = await ctx.clients.daemon(account, method, where=here)
            caller = await ctx.clients.caller(account, there)
            await caller.call(method, target=daemon, timeout_ms=5000, group="call")

    def check(self, history: History) -> list[Promise]:
        def ways(history: History) -> float:
            calls = history.pairs("call")
            return len({(p.value["callerReplica"], p.result.get("byReplica")) for p in calls})

        return judge(
            history,
            (
                crossing(ROUNDS, group="call"),
                reached("ordered pairs of replicas", 6, "pairs", ways),
                all_ok("calls", ROUNDS, group="call"),
            ),
        )
