"""SIGKILL of the replica that the target is connected to, with calls in flight."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing, fault_happened, in_flight, killed
from moorage_chaos.checkers.ends import ended_with, typed_ends
from moorage_chaos.checkers.latency import after_loss, faults
from moorage_chaos.drivers.base import Can
from moorage_chaos.faults.process import Kill
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, running, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

KILLS = 20
IN_FLIGHT = 6
"""Calls in flight at each kill: 20 x 6 samples make a p99."""

LOCAL_BARS = {0.5: 30.0, 0.99: 150.0}
KUBERNETES_BARS = {1.0: 1000.0}


class PodKillMidRpc(Scenario):
    name = "pod-kill-mid-rpc"
    promise = "20 SIGKILLs of the target's replica in mid call: typed end, p50 <= 30 ms, p99 <= 150 ms from the kill"
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"kill"})
    bound_s = 150.0
    mutants: ClassVar[tuple[str, ...]] = ("no-fast-fail", "delivered-lie", "hang-call")

    async def run(self, ctx: Context) -> None:
        clients = ctx.clients
        account = clients.account()
        ctx.history.note("driver", kind=ctx.driver.kind)
        for i in range(KILLS):
            places = replicas(ctx.driver)
            victim = places[i % len(places)]
            others = [place for place in places if place is not victim]
            method, group = f"kill:{i}", f"kill-{i}"
            daemon = await clients.daemon(account, method, where=victim)
            callers = await together(
                clients.caller(account, others[n % len(others)]) for n in range(IN_FLIGHT)
            )
            calls = [
                clients.start(c.call(method, target=daemon, sleep_ms=10_000, timeout_ms=15_000, group=group))
                for c in callers
            ]
            await running(clients, IN_FLIGHT, group)
            kill = Kill(victim)
            await ctx.faults.inject(kill)
            await together(calls)
            await together(c.close() for c in callers)
            await ctx.faults.undo(kill)
            ctx.progress(f"{i + 1} of {KILLS} kills")

    def check(self, history: History) -> list[Promise]:
        local = [note.value["kind"] for note in history.notes("driver")] == ["local"]
        calls = KILLS * IN_FLIGHT
        return judge(
            history,
            (
                fault_happened(Kill.kind, KILLS, killed),
                crossing(calls),
                in_flight(Kill.kind, IN_FLIGHT),
                typed_ends(allow=frozenset({"target_disconnected"})),
                ended_with("ends", "target_disconnected", calls),
                after_loss(
                    "from the kill to the answer",
                    LOCAL_BARS if local else KUBERNETES_BARS,
                    faults(Kill.kind),
                    at_least=calls,
                ),
            ),
        )
