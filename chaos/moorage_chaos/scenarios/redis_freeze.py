"""Redis hangs for 20 s."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing, fault_happened, reached
from moorage_chaos.checkers.broadcast import exactly_once, first_copy_within
from moorage_chaos.checkers.ends import all_ok, typed_ends
from moorage_chaos.checkers.latency import duration
from moorage_chaos.drivers.base import Can
from moorage_chaos.faults.redis import Pause
from moorage_chaos.history import History
from moorage_chaos.scenarios._redis_outage import OUTAGE_S, Outage, outage_s
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise


class RedisFreeze(Scenario):
    name = "redis-freeze"
    promise = (
        "Redis SIGSTOP 20 s: local calls and events <= 50 ms, calls across end typed, all back <= 2 s after"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"redis-pause"})
    mutants: ClassVar[tuple[str, ...]] = ("local-waits-for-redis", "hang-call", "ignore-fault")

    async def run(self, ctx: Context) -> None:
        await Outage(ctx).play(Pause())

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                fault_happened(Pause.kind, 1, lambda proof: proof.get("state") == "T"),
                reached("length of the freeze", OUTAGE_S, "s", outage_s),
                crossing(100, way="cross"),
                all_ok("same-replica calls", 200, way="same"),
                duration("same-replica calls", 0.99, 50.0, way="same", group="away"),
                exactly_once(40, what="local"),
                first_copy_within("local events", 0.99, 50.0, what="local", group="away"),
                typed_ends(way="cross"),
                typed_ends(group=("held-3", "held-22")),
                all_ok("cross-replica calls 2 s after", 80, way="cross", group="back"),
            ),
        )
