"""Redis is killed, loses its data, and comes back after 20 s. Sessions are elsewhere: only events are lost."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing, fault_happened, killed, reached
from moorage_chaos.checkers.broadcast import exactly_once
from moorage_chaos.checkers.ends import all_ok, typed_ends
from moorage_chaos.checkers.logged import each_once, holes_told, log_order
from moorage_chaos.checkers.outage import announced_within
from moorage_chaos.drivers.base import Can, Setup
from moorage_chaos.faults.redis import Kill
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._logs import Following
from moorage_chaos.scenarios._redis_outage import OUTAGE_S, Outage, outage_s
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

AGAIN_S = 30.0
"""The hole is announced at most this long after Redis is back (MATRIX, redis-outage-mid-task)."""


class Broadcasting(Outage):
    """With an ephemeral broadcast to every replica each 200 ms, begun before and once all is back; and with event
    logs that are read all the time."""

    def more(self) -> list[Coroutine[Any, Any, None]]:
        return [self._broadcasts(), Following(self.ctx).run(lambda: self.group, self.over)]

    async def _broadcasts(self) -> None:
        clients, account = self.ctx.clients, self.ctx.clients.account()
        readers = [await clients.client(account, "reader").connect(place) for place in self.places]

        async def emit(n: int) -> None:
            group = self.group
            if group not in ("before", "back"):
                return
            place = self.places[n % len(self.places)]
            await clients.emit(
                account,
                "ephemeral",
                {"type": "user-scoped-only"},
                expect=readers,
                where=place,
                group=group,
                what="all",
            )

        await play(every(200, 120_000), emit, until=self.over.is_set)


class RedisRestart(Scenario):
    name = "redis-restart"
    promise = (
        "Redis killed, wiped, back after 20 s: calls end typed, all back <= 2 s after, no replica stays deaf; readers "
        "of event logs get each event or are told of the gap"
    )
    safe = False
    lane: ClassVar[Lane] = "calm"
    needs: ClassVar[frozenset[Can]] = frozenset({"redis-kill"})
    setup: ClassVar[Setup | None] = Setup(state_redis=True)
    mutants: ClassVar[tuple[str, ...]] = ("deaf-after-restart", "hang-call")

    async def run(self, ctx: Context) -> None:
        await Broadcasting(ctx).play(Kill(keep=False))

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                fault_happened(Kill.kind, 1, killed),
                reached("length of the outage", OUTAGE_S, "s", outage_s),
                crossing(100, way="cross"),
                typed_ends(way=("cross", "same")),
                typed_ends(group=("held-3", "held-22")),
                all_ok("same-replica calls", 200, way="same"),
                all_ok("calls between all pairs 2 s after", 80, way="cross", group="back"),
                exactly_once(20, what="all", group="back"),
                each_once(100, gaps=True),
                holes_told(1),
                log_order(),
                announced_within(AGAIN_S, 1),
            ),
        )
