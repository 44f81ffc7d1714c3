"""Links between clients and replicas flap for a minute."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos import ours
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.ends import typed_ends
from moorage_chaos.drivers.base import Can
from moorage_chaos.faults.base import Fault
from moorage_chaos.faults.link import Blackhole, Cut, Down, Freeze, Slow
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

SECONDS = 60
EVERY_MS = 250
PAIRS = 3


class NetworkLoss(Scenario):
    name = "network-loss"
    promise = (
        "60 s of calls each 250 ms while links are cut, frozen, slowed and swallowed: every call ends typed"
    )
    safe = False
    lane: ClassVar[Lane] = "calm"
    needs: ClassVar[frozenset[Can]] = frozenset({"client-links"})
    bound_s = 100.0
    mutants: ClassVar[tuple[str, ...]] = ("end-falsely",)

    async def run(self, ctx: Context) -> None:
        clients, account, rng = ctx.clients, ctx.clients.account(), ctx.random
        daemons = await together(ours.daemon(clients, account, f"loss:{i}") for i in range(PAIRS))
        callers = await together(ours.caller(clients, account) for _ in range(PAIRS))
        over = asyncio.Event()

        async def call(n: int) -> None:
            await callers[n % PAIRS].invoke(
                f"loss:{n % PAIRS}", target=daemons[n % PAIRS], sleep_ms=50, timeout_ms=4000, group="call"
            )

        async def flap() -> None:
            links = [place.link for place in replicas(ctx.driver)]
            while not over.is_set():
                link = rng.choice(links)
                faults: list[Fault] = [
                    Cut(link),
                    Down(link),
                    Freeze(link),
                    Blackhole(link, direction=rng.choice(("both", "up", "down"))),
                    Slow(link, delay_ms=50),
                ]
                async with ctx.faults.hold(rng.choice(faults)):
                    await asyncio.sleep(rng.uniform(0.2, 2.0))
                await asyncio.sleep(rng.uniform(0.1, 0.6))

        flaps = clients.start(flap())
        await play(every(EVERY_MS, SECONDS * 1000), call)
        over.set()
        await flaps

    def check(self, history: History) -> list[Promise]:
        def flapped(history: History) -> float:
            return len(history.pairs("fault"))

        def disturbed(history: History) -> float:
            return sum(pair.phase != "ok" or (pair.ms or 0) > 200 for pair in history.pairs("call"))

        return judge(
            history,
            (
                reached("link faults", 15, "faults", flapped),
                reached("calls that noticed", 5, "calls", disturbed),
                reached("calls", SECONDS * 1000 / EVERY_MS, "calls", lambda h: len(h.pairs("call"))),
                typed_ends(lost_callers=True, group="call"),
            ),
        )
