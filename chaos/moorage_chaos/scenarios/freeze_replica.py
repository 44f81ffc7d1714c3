"""The target's replica hangs: 700 ms, then 10 s."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing, fault_happened, in_flight, reached
from moorage_chaos.checkers.ends import all_ok, answered_by_target, ended_with, typed_ends
from moorage_chaos.checkers.latency import after_loss, faults
from moorage_chaos.checkers.runs import no_late_runs
from moorage_chaos.drivers.base import Can
from moorage_chaos.faults.process import Pause
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._common import replicas, running, together
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

BRIEF, LONG = "freeze:brief", "freeze:long"
BRIEF_S, LONG_S = 0.7, 10.0
TIMER_S = 0.02
"""The timers of a loop may be early by a millisecond; the freeze must not be shorter than promised."""

CALLERS, EACH = 4, 25
"""100 calls in flight at the long freeze make a p99."""

STALE = 5
"""Calls sent into the frozen replica before anybody can know."""


class FreezeReplica(Scenario):
    name = "freeze-replica"
    promise = "SIGSTOP 700 ms: no false end; 10 s: typed end p99 <= 1.5 s, and the woken replica serves nothing stale"
    safe = False
    lane: ClassVar[Lane] = "calm"
    needs: ClassVar[frozenset[Can]] = frozenset({"pause"})
    mutants: ClassVar[tuple[str, ...]] = ("hasty-evidence", "no-hang-evidence")

    async def run(self, ctx: Context) -> None:
        frozen, there, *more = replicas(ctx.driver)
        third = more[0] if more else there
        clients, account = ctx.clients, ctx.clients.account()
        old = await clients.daemon(account, BRIEF, LONG, where=frozen)
        beside = await clients.daemon(account, "freeze:beside", where=there)
        callers = await together(clients.caller(account, (there, third)[i % 2]) for i in range(CALLERS))

        async def brief(n: int) -> None:
            await together(
                (
                    callers[0].call(BRIEF, target=old, timeout_ms=5000, group="brief"),
                    callers[1].call(BRIEF, target=old, sleep_ms=1500, timeout_ms=8000, group="brief"),
                    callers[1].call("freeze:beside", target=beside, timeout_ms=5000, group="beside"),
                )
            )

        load = clients.start(play(every(50, 2500), brief))
        await asyncio.sleep(1.0)
        async with ctx.faults.hold(Pause(frozen)):
            await asyncio.sleep(BRIEF_S)
        await load

        calls = [
            clients.start(c.call(LONG, target=old, sleep_ms=30_000, timeout_ms=25_000, group="long"))
            for c in callers
            for _ in range(EACH)
        ]
        await running(clients, CALLERS * EACH, "long")
        async with ctx.faults.hold(Pause(frozen)):
            woken = asyncio.get_running_loop().time() + LONG_S + TIMER_S
            await asyncio.sleep(0.1)
            stale = [
                clients.start(callers[i % 2].call(LONG, target=old, timeout_ms=4000, group="stale"))
                for i in range(STALE)
            ]
            await together([*calls, *stale])
            new = await clients.daemon(account, LONG, where=there)
            await together(c.call(LONG, target=new, timeout_ms=3000, group="meanwhile") for c in callers)
            await asyncio.sleep(max(0.0, woken - asyncio.get_running_loop().time()))
        await asyncio.sleep(2.0)
        local = await clients.caller(account, frozen)
        await together(c.call(LONG, target=new, timeout_ms=3000, group="woken") for c in [*callers, local])

    def check(self, history: History) -> list[Promise]:
        def held_long(history: History) -> float:
            undone = {p.invoke.t: p.t0 for p in history.pairs("undo")}
            starts = [p.t0 for p in history.pairs("fault")]
            return (max(undone.values(), default=0) - max(starts, default=0)) / 1e9

        total = CALLERS * EACH
        return judge(
            history,
            (
                fault_happened(Pause.kind, 2, lambda proof: proof.get("state") == "T"),
                reached("length of the long freeze", LONG_S, "s", held_long),
                crossing(total, group="long"),
                in_flight(Pause.kind, 1),
                all_ok("calls around the 700 ms freeze", 100, group="brief"),
                all_ok("calls beside it", 50, group="beside"),
                ended_with("calls in flight at the 10 s freeze", "target_disconnected", total, group="long"),
                after_loss(
                    "from the freeze to the answer",
                    {0.99: 1500.0},
                    faults(Pause.kind),
                    at_least=total,
                    group="long",
                ),
                typed_ends(group="stale"),
                no_late_runs(group="stale"),
                all_ok("calls to the daemon that took over", CALLERS, group="meanwhile"),
                all_ok("calls after the wake", CALLERS + 1, group="woken"),
                answered_by_target("answered by the newer daemon", group=("meanwhile", "woken")),
            ),
        )
