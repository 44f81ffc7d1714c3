"""The managed Redis is taken away and given back under load."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import ClassVar

from moorage_chaos import ours
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.base import held
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.ends import typed_ends
from moorage_chaos.checkers.figures import at_least
from moorage_chaos.checkers.islands import no_islands
from moorage_chaos.cluster import Own
from moorage_chaos.drivers.base import Can
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._pods import Recorder
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

METHOD = "toggle:echo"
EVERY_MS = 50
LONGEST_MS = 280_000
MODES = ("Disabled", "Managed")
STEPS = {"ScalingDown", "RollingOffRedis", "RollingOntoRedis", "ScalingUp"}


class RedisToggle(Scenario):
    name = "redis-toggle"
    promise = (
        "Redis off and on again under load: never two replicas without Redis, one roll each, every call typed"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"cluster"})
    bound_s = 75.0

    async def run(self, ctx: Context) -> None:
        own, clients, account = Own(ctx.driver), ctx.clients, ctx.clients.account()
        daemon = await ours.daemon(clients, account, METHOD)
        caller = await ours.caller(clients, account)
        over = asyncio.Event()

        async def call(n: int) -> None:
            await caller.invoke(METHOD, target=daemon, timeout_ms=5000, group="call")

        load = clients.start(play(every(EVERY_MS, LONGEST_MS), call, until=over.is_set))
        known = await own.reasons()
        async with Recorder(own, ctx.history):
            for mode in MODES:
                before = await own.revision()
                await own.patch(redis={"mode": mode})
                body = await own.ready()
                ctx.history.note(
                    "switched",
                    mode=body["status"]["mode"],
                    revisions=await own.revision() - before,
                    replicas=body["status"]["readyReplicas"],
                )
                ctx.progress(mode)
        ctx.history.note("steps", seen=sorted(STEPS & (await own.reasons() - known).keys()))
        await asyncio.sleep(1.0)
        over.set()
        await load

    def check(self, history: History) -> list[Promise]:
        count = history.header.get("replicas") or []

        def switched(history: History) -> Iterator[Promise]:
            found = [
                (n.value["mode"], n.value["revisions"], n.value["replicas"])
                for n in history.notes("switched")
            ]
            wanted = [("SingleReplica", 1, 1), ("Clustered", 1, len(count))]
            yield Promise(
                "each switch ends, with one roll", str(wanted), str(found), "", held(found == wanted)
            )

        def good(history: History) -> float:
            return float(history.counts("call")["ok"])

        return judge(
            history,
            (
                reached(
                    "steps of the switches",
                    len(STEPS),
                    "steps",
                    lambda h: len(h.notes("steps")[-1].value["seen"]),
                ),
                reached("calls meanwhile", 100, "calls", lambda h: len(h.pairs("call"))),
                switched,
                no_islands(),
                typed_ends(lost_callers=True, group="call"),
                at_least("calls that succeeded", 50, "calls", good),
            ),
        )
