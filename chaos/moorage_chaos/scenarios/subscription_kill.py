"""Redis ends the connections of all, again and again, while events and updates flow."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import fault_happened
from moorage_chaos.checkers.broadcast import exactly_once, in_order
from moorage_chaos.checkers.figures import at_most
from moorage_chaos.checkers.logged import each_once, log_order, turns_ended
from moorage_chaos.drivers.base import Can, Setup
from moorage_chaos.faults.redis import KillClients
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.readers import Reader, reader
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios._logs import LOGS, Logs
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

KILLS, KILL_EVERY_MS = 100, 150
SESSIONS = 6
COUNT, EVERY_MS = 600, 25
UPDATE_EVERY_MS = 200
FDS = "process_open_fds"
MORE_FDS = 10.0
"""A replica may have this many more at the end: clients keep HTTP connections open for a while, so that it has 37 to 42
descriptors at either look. One that leaks with each kill would make 50 more."""


class SubscriptionKill(Scenario):
    name = "subscription-kill"
    promise = "100 x CLIENT KILL TYPE pubsub / normal during traffic: no event lost or doubled, descriptors constant"
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"redis-kill"})
    setup: ClassVar[Setup | None] = LOGS
    bound_s = 90.0
    mutants: ClassVar[tuple[str, ...]] = ("lose-logged", "double-logged", "leak-descriptors")

    async def run(self, ctx: Context) -> None:
        logs = Logs(ctx)
        places = replicas(ctx.driver)
        account, updates = ctx.clients.account(), ctx.clients.account()
        sessions = await together(logs.session(account) for _ in range(SESSIONS))
        readers: list[Reader] = await together(
            reader(ctx.clients, account, session, where=place) for session in sessions for place in places
        )
        sockets = [await ctx.clients.client(updates, "socket").connect(place) for place in places]
        await self._count(ctx, "before")
        task = {"count": COUNT, "everyMs": EVERY_MS}
        await together(logs.turn(account, one, task, "chaos-turn") for one in readers[:: len(places)])

        async def emit(n: int) -> None:
            await ctx.clients.emit(
                updates,
                "update",
                {"type": "user-scoped-only"},
                expect=sockets,
                where=places[n % len(places)],
                via=places[n % len(places)].link,
            )

        over = asyncio.Event()
        emits = ctx.clients.start(play(every(UPDATE_EVERY_MS, 60_000), emit, until=over.is_set))
        for n in range(KILLS):
            # One after the other: a kill must not hit the connection by which another is asked for.
            await ctx.faults.inject(KillClients("pubsub" if n % 2 else "normal"))
            await asyncio.sleep(KILL_EVERY_MS / 1000)
        over.set()
        await emits
        await together(one.until("task_result", 25.0) for one in readers)
        await asyncio.sleep(2.0)
        await self._count(ctx, "after")
        await logs.finish(*readers)

    async def _count(self, ctx: Context, when: str) -> None:
        for place in ctx.driver.replicas:
            fds = (await ctx.driver.metrics(place))[FDS]
            ctx.history.note("descriptors", replica=place.id, when=when, count=fds)

    def check(self, history: History) -> list[Promise]:
        copies = SESSIONS * len({note.value["at"] for note in history.notes("reader")}) * COUNT
        return judge(
            history,
            (
                fault_happened(KillClients.kind, KILLS, lambda proof: proof.get("killed", 0) > 0),
                each_once(max(1, copies)),
                log_order(),
                turns_ended(SESSIONS),
                exactly_once(30, all_accepted=False),
                in_order(),
                at_most("descriptors more than before", MORE_FDS, "descriptors", _more_fds),
            ),
        )


def _more_fds(history: History) -> float:
    counts = {(n.value["replica"], n.value["when"]): n.value["count"] for n in history.notes("descriptors")}
    names = {name for name, _ in counts}
    return max(float(counts[name, "after"] - counts[name, "before"]) for name in names)
