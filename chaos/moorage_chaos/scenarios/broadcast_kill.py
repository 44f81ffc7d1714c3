"""A replica is killed under a steady broadcast; its clients come back elsewhere."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import fault_happened, killed, reached
from moorage_chaos.checkers.broadcast import exactly_once, in_order
from moorage_chaos.checkers.returns import all_recovered, missed_meanwhile
from moorage_chaos.drivers.base import Can
from moorage_chaos.faults.process import Kill
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.recovering import RecoveringClient, recovering
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

SOCKETS = 20
EVERY_MS = 50
KILL_AFTER_S = 1.0
AWAY_S = 0.5
"""From the kill to the return: some ten broadcasts."""
TOTAL_MS = 3000
SETTLE_S = 0.3
FILTER = {"type": "user-scoped-only"}


class BroadcastKill(Scenario):
    name = "broadcast-kill"
    promise = (
        "20 sockets over all replicas, one replica killed under a broadcast each 50 ms: those on the others miss and "
        "double nothing, the rest get what they missed once, recovered is true"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"kill"})
    mutants: ClassVar[tuple[str, ...]] = ("skip-recovery-replay", "forget-private-ids")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        account = ctx.clients.account()
        sockets = [await recovering(ctx.clients, account, places[i % len(places)]) for i in range(SOCKETS)]
        victim = ctx.random.choice(places)
        others = [place for place in places if place is not victim]
        lost = [socket for socket in sockets if socket.replica == victim.id]
        before = len(ctx.history.notes("received"))
        wanted = 0

        async def emit(number: int) -> None:
            nonlocal wanted
            place = others[number % len(others)]
            operation = await ctx.clients.emit(
                account, "update", FILTER, expect=list(sockets), where=place, via=place.link
            )
            wanted += SOCKETS if operation.good else 0

        async def come_back(index: int, socket: RecoveringClient) -> None:
            await ctx.clients.until(lambda: not socket.up, 3.0, f"{socket.name} lost its connection")
            await asyncio.sleep(AWAY_S + ctx.random.uniform(0, 0.2))
            await socket.connect(others[index % len(others)])

        async def kill() -> Kill:
            await asyncio.sleep(KILL_AFTER_S)
            fault = Kill(victim)
            ctx.history.note("victims", sockets=[socket.name for socket in lost])
            await ctx.faults.inject(fault)
            await together(come_back(i, socket) for i, socket in enumerate(lost))
            return fault

        killing = asyncio.ensure_future(kill())
        await together([play(every(EVERY_MS, TOTAL_MS), emit), killing])
        try:
            await ctx.clients.until(
                lambda: len(ctx.history.notes("received")) - before >= wanted, 3.0, "all copies"
            )
        except TimeoutError:
            ctx.progress("copies are missing")
        await asyncio.sleep(SETTLE_S)
        await ctx.faults.undo(killing.result())

    def check(self, history: History) -> list[Promise]:
        def victims(history: History) -> float:
            return max((len(note.value["sockets"]) for note in history.notes("victims")), default=0)

        least = SOCKETS // 4
        return judge(
            history,
            (
                fault_happened(Kill.kind, 1, killed),
                reached("sockets on the killed replica", least, "sockets", victims),
                missed_meanwhile(least * 5),
                all_recovered(least),
                exactly_once(TOTAL_MS // EVERY_MS),
                in_order(),
            ),
        )
