"""Clients are cut, and come back to another replica or the same one: what was sent meanwhile comes once."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.broadcast import exactly_once, in_order
from moorage_chaos.checkers.returns import all_recovered, missed_meanwhile
from moorage_chaos.history import History
from moorage_chaos.recovering import RecoveringClient, recovering
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

SOCKETS = 12
ROUNDS = 4
"""The first before any event was received; each leads a client to another replica than the one before."""
AWAY = 4
"""Updates while the clients are away, each from another replica."""
RETURNING = 30
"""Further ones while they return, without a pause: some must fall into the milliseconds of a replay, in which they are
both in the log and live."""
SETTLE_S = 0.3
"""After the last expected copy: time in which a copy too many would show."""
FILTER = {"type": "user-scoped-only"}


class MissedEvents(Scenario):
    name = "missed-events"
    promise = "12 sockets are cut 4 times under updates: every missed one comes once and in order, recovered is true"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = (
        "skip-recovery-replay",
        "skip-recovery-dedupe",
        "forget-private-ids",
    )

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        account = ctx.clients.account()
        sockets = [await recovering(ctx.clients, account, places[i % len(places)]) for i in range(SOCKETS)]
        before = len(ctx.history.notes("received"))
        wanted = 0

        async def emit(number: int) -> None:
            nonlocal wanted
            place = places[number % len(places)]
            operation = await ctx.clients.emit(
                account, "update", FILTER, expect=list(sockets), where=place, via=place.link
            )
            wanted += SOCKETS if operation.good else 0

        async def come_back(index: int, socket: RecoveringClient, turn: int) -> None:
            await asyncio.sleep(ctx.random.uniform(0, 0.05))
            await socket.connect(places[(index + turn) % len(places)])

        for turn in range(1, ROUNDS + 1):
            for socket in sockets:
                socket.cut()
            for number in range(AWAY):
                await emit(number + turn)
            work: list[Any] = [come_back(i, socket, turn) for i, socket in enumerate(sockets)]
            work += [self._while_they_return(emit)]
            await together(work)
        try:
            await ctx.clients.until(
                lambda: len(ctx.history.notes("received")) - before >= wanted, 3.0, "all copies"
            )
        except TimeoutError:
            ctx.progress("copies are missing")
        await asyncio.sleep(SETTLE_S)

    @staticmethod
    async def _while_they_return(emit: Any) -> None:
        for number in range(RETURNING):
            await emit(number)

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                missed_meanwhile(ROUNDS * AWAY * SOCKETS),
                all_recovered(ROUNDS * SOCKETS),
                exactly_once(ROUNDS * (AWAY + RETURNING)),
                in_order(),
            ),
        )
