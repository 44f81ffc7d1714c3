"""Redis is killed and comes back after 20 s with its data."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing, fault_happened, killed, reached
from moorage_chaos.checkers.broadcast import exactly_once, in_order
from moorage_chaos.checkers.ends import all_ok, typed_ends
from moorage_chaos.checkers.figures import at_most
from moorage_chaos.checkers.logged import each_once, holes_told, log_order
from moorage_chaos.drivers.base import Can, DriverError, Setup
from moorage_chaos.faults.redis import Kill
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._logs import Following
from moorage_chaos.scenarios._redis_outage import OUTAGE_S, Outage, outage_s
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

MESSAGES = 20


class Storing(Outage):
    """With an ``update`` each 100 ms to sockets on all replicas, messages stored before, and event logs that are read
    all the time."""

    session = ""

    def more(self) -> list[Coroutine[Any, Any, None]]:
        return [self._updates(), Following(self.ctx).run(lambda: self.group, self.over)]

    async def store(self) -> None:
        """Create a session and store messages in it."""
        clients = self.ctx.clients
        status, body = await clients.request(
            "POST", "/v1/sessions", {"tag": "kept", "metadata": "m"}, account=self.events
        )
        if status != 200:
            raise DriverError(f"POST /v1/sessions answered {status}")
        self.session = body["session"]["id"]
        writer = await clients.client(self.events, "writer").connect(self.places[0])
        for i in range(MESSAGES):
            done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
            writer.send(
                "message", {"sid": self.session, "message": f"m{i}", "localId": str(i)}, done.set_result
            )
            async with asyncio.timeout(5):
                await done
        await writer.close()

    async def count(self) -> int:
        """Messages that are still there."""
        path = f"/v1/sessions/{self.session}/messages?after_seq=0&limit=100"
        status, body = await self.ctx.clients.request("GET", path, account=self.events)
        return len(body["messages"]) if status == 200 else 0

    async def _updates(self) -> None:
        clients, account = self.ctx.clients, self.ctx.clients.account()
        readers = [await clients.client(account, "reader").connect(place) for place in self.places]

        async def emit(n: int) -> None:
            place = self.places[n % len(self.places)]
            filter_ = {"type": "user-scoped-only"}
            await clients.emit(
                account,
                "update",
                filter_,
                expect=readers,
                where=place,
                via=place.link,
                group=self.group,
                what="all",
            )

        await play(every(100, 120_000), emit, until=self.over.is_set)
        await asyncio.sleep(1.0)


class RedisRestartKept(Scenario):
    name = "redis-restart-kept"
    promise = (
        "Redis killed, back after 20 s with its data: nothing that was accepted is lost, calls end typed"
    )
    safe = False
    lane: ClassVar[Lane] = "calm"
    needs: ClassVar[frozenset[Can]] = frozenset({"redis-kill", "redis-keep"})
    setup = Setup(redis_keep=True)
    mutants: ClassVar[tuple[str, ...]] = ("deaf-after-restart", "drop-event", "lose-logged")

    async def run(self, ctx: Context) -> None:
        outage = Storing(ctx)
        await outage.store()
        await outage.play(Kill(keep=True))
        ctx.history.note("messages", stored=MESSAGES, found=await outage.count())

    def check(self, history: History) -> list[Promise]:
        def lost(history: History) -> float:
            note = history.notes("messages")[-1].value
            return float(note["stored"] - note["found"])

        return judge(
            history,
            (
                fault_happened(Kill.kind, 1, killed),
                reached("length of the outage", OUTAGE_S, "s", outage_s),
                crossing(100, way="cross"),
                typed_ends(way=("cross", "same")),
                all_ok("calls between all pairs 2 s after", 80, way="cross", group="back"),
                at_most("stored messages lost", 0, "messages", lost),
                exactly_once(20, what="all", group=("before", "back")),
                # What was accepted while Redis went or came reached everybody once, what was refused nobody.
                exactly_once(1, all_accepted=False, what="all", group=("away", "returning")),
                in_order(what="all"),
                each_once(100),
                holes_told(0),
                log_order(),
            ),
        )
