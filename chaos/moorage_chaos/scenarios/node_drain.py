"""Pods are evicted through the API, and a node is cordoned and drained."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

from moorage_chaos import ours
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.base import held
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.ends import typed_ends
from moorage_chaos.checkers.figures import at_least, at_most
from moorage_chaos.cluster import Own, on_cluster, until
from moorage_chaos.drivers.base import Can, DriverError
from moorage_chaos.faults.node import Cordon, Evict
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

EVERY_MS = 100
DRAIN_S = 90.0
LONGEST_MS = 240_000


class NodeDrain(Scenario):
    name = "node-drain"
    promise = (
        "the disruption budget holds at two replicas and never blocks at one; a drained node's pods move"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"cluster"})
    bound_s = 75.0

    async def run(self, ctx: Context) -> None:
        own, clients, account = Own(ctx.driver), ctx.clients, ctx.clients.account()
        daemon = await ours.daemon(clients, account, "drain:echo")
        caller = await ours.caller(clients, account)
        over = asyncio.Event()

        async def call(n: int) -> None:
            await caller.invoke("drain:echo", target=daemon, timeout_ms=10_000, group="call")

        load = clients.start(play(every(EVERY_MS, LONGEST_MS), call, until=over.is_set))
        await self._scaled(own, 2)
        first, second = await self._places(ctx, 2)
        await until("the budget allows one", lambda: _allowed(own, 1), 30)
        await asyncio.gather(*(ctx.faults.inject(Evict(place, at=2)) for place in (first, second)))
        await own.ready()
        ctx.progress("at one replica")
        await self._scaled(own, 1)
        (last,) = await self._places(ctx, 1)
        await ctx.faults.inject(Evict(last, at=1))
        await own.ready()
        ctx.progress("draining a node")
        await self._scaled(own, ctx.driver.setup.replicas)
        await self._drain(ctx, own)
        over.set()
        await load

    @staticmethod
    async def _scaled(own: Own, count: int) -> None:
        await own.patch(replicas=count)
        await own.ready()

    @staticmethod
    async def _places(ctx: Context, count: int) -> list[Any]:
        """Places whose pods are those that run now."""

        async def found() -> list[Any]:
            ready = [place for place in ctx.driver.replicas if place.state == "ready"]
            return ready if len(ready) == count else []

        places: list[Any] = await until(f"{count} places are held", found, 30)
        return places

    async def _drain(self, ctx: Context, own: Own) -> None:
        node = (await own.pods())[0]["spec"]["nodeName"]
        async with ctx.faults.hold(Cordon(node)):
            loop = asyncio.get_running_loop()
            end = loop.time() + DRAIN_S
            while there := [pod for pod in await own.pods() if pod["spec"].get("nodeName") == node]:
                if loop.time() > end:
                    raise DriverError(f"{len(there)} pods are still on {node}")
                for pod in there:
                    held = on_cluster(ctx.driver).replicas
                    place = next((p for p in held if p.pod and p.pod.uid == pod["metadata"]["uid"]), None)
                    if place is not None and place.state == "ready":
                        await ctx.faults.inject(Evict(place, at=ctx.driver.setup.replicas))
                await asyncio.sleep(0.5)
            await own.ready()
            left = [pod["metadata"]["name"] for pod in await own.pods() if pod["spec"]["nodeName"] == node]
            ctx.history.note("drained", node=node, left=left)

    def check(self, history: History) -> list[Promise]:
        evictions = [p for p in history.pairs("fault") if p.value["kind"] == Evict.kind and p.phase == "ok"]

        def answers(at: int) -> list[bool]:
            return [p.result["proof"]["granted"] for p in evictions if p.result["proof"]["at"] == at]

        def budget(history: History) -> Iterator[Promise]:
            two, one = sorted(answers(2)), answers(1)
            yield Promise(
                "two evictions at once at two replicas",
                "one refused",
                str(two),
                "",
                held(two == [False, True]),
            )
            yield Promise("an eviction at one replica", "granted", str(one), "", held(one == [True]))

        def never_none(history: History) -> float:
            counts = [
                sum((conditions or {}).get("ready") is not False for _, conditions in note.value["pods"])
                for note in history.notes("endpoints")
            ]
            ones = [p.t0 for p in evictions if p.result["proof"]["at"] == 1]
            ends = [p.t1 or 0 for p in evictions if p.result["proof"]["at"] == 1]
            alone = (min(ones, default=0) - 10**9, max(ends, default=0) + 20 * 10**9)
            notes = history.notes("endpoints")
            outside = [c for c, note in zip(counts, notes, strict=True) if not alone[0] < note.t < alone[1]]
            return float(min(outside, default=0))

        return judge(
            history,
            (
                reached("evictions", 3, "evictions", lambda h: float(len(evictions))),
                budget,
                at_least("ready addresses of the Service but while at one replica", 1, "pods", never_none),
                at_most(
                    "pods left on the drained node",
                    0,
                    "pods",
                    lambda h: len(h.notes("drained")[-1].value["left"]),
                ),
                # At one replica the eviction takes the only one: whoever cannot move in time is cut off with it.
                typed_ends(lost_callers=True, group="call"),
            ),
        )


async def _allowed(own: Own, count: int) -> bool:
    budget = await own.child("PodDisruptionBudget")
    return budget is not None and (budget.get("status") or {}).get("disruptionsAllowed") == count
