"""SIGKILL of a replica that serves neither side of the calls that are watched."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing, fault_happened, killed, reached
from moorage_chaos.checkers.bystander import not_slower
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.drivers.base import Can
from moorage_chaos.faults.process import Kill
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._common import replicas, running, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

METHOD = "bystander:echo"
EVERY_MS = 20
BEFORE_MS = 3000
DURING_MS = 9000
LONG_MS = 8000
LONG = 6


class Bystander(Scenario):
    name = "bystander"
    promise = (
        "SIGKILL of a third replica: calls between two others do not fail or slow beyond max(2 x p99, 100 ms)"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"kill"})
    mutants: ClassVar[tuple[str, ...]] = ("end-falsely", "stall-on-death", "ignore-fault")

    async def run(self, ctx: Context) -> None:
        here, there, victim = replicas(ctx.driver, 3)[:3]
        clients, account = ctx.clients, ctx.clients.account()
        daemon = await clients.daemon(account, METHOD, where=here)
        caller = await clients.caller(account, there)
        watchers = [await clients.caller(account, place) for place in (here, there) for _ in range(LONG // 2)]
        # The victim has work of its own, so that its death concerns somebody.
        doomed = await clients.daemon(account, "bystander:doomed", where=victim)

        async def call(group: str) -> None:
            await caller.call(METHOD, target=daemon, timeout_ms=5000, group=group)

        await play(every(EVERY_MS, BEFORE_MS), lambda n: call("before"))
        long = [
            clients.start(c.call(METHOD, target=daemon, sleep_ms=LONG_MS, timeout_ms=20_000, group="long"))
            for c in watchers
        ]
        dying = clients.start(
            caller.call("bystander:doomed", target=doomed, sleep_ms=20_000, timeout_ms=5000, group="doomed")
        )
        await running(clients, LONG, "long")
        await running(clients, 1, "doomed")
        load = clients.start(play(every(EVERY_MS, DURING_MS), lambda n: call("during")))
        await asyncio.sleep(0.2)
        await ctx.faults.inject(Kill(victim))
        await together([*long, load, dying])

    def check(self, history: History) -> list[Promise]:
        def outlived(history: History) -> float:
            kills = [int(p.result.get("tNs", p.t0)) for p in history.pairs("fault")]
            long = [p for p in history.pairs("call") if p.value.get("group") == "long"]
            return sum(p.t0 < kills[0] < (p.t1 or 0) for p in long) if kills else 0

        return judge(
            history,
            (
                fault_happened(Kill.kind, 1, killed),
                reached("long calls in flight at the kill", LONG, "calls", outlived),
                crossing(int((BEFORE_MS + DURING_MS) / EVERY_MS), group=("before", "during")),
                all_ok(
                    "calls between survivors",
                    int((BEFORE_MS + DURING_MS) / EVERY_MS),
                    group=("before", "during"),
                ),
                all_ok("8 s calls between survivors", LONG, group="long"),
                not_slower(2, 100, {"group": "before"}, {"group": "during"}),
            ),
        )
