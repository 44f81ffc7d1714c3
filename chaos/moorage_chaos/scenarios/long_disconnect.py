"""A daemon never comes back."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.ends import ended_with
from moorage_chaos.checkers.latency import duration, not_before
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

GRACE_MS = 15_000.0
"""RPC_RECONNECT_GRACE_MS (PROTOCOL, RPC 3)."""
CALLS = 5


class LongDisconnect(Scenario):
    name = "long-disconnect"
    promise = (
        "calls to a daemon that never comes back end not_available at the grace's end, at most 50 ms later"
    )
    safe = True
    lane: ClassVar[Lane] = "idle"
    bound_s = 90.0
    mutants: ClassVar[tuple[str, ...]] = ("no-grace", "hang-call")

    async def run(self, ctx: Context) -> None:
        here, there = replicas(ctx.driver)[:2]
        account = ctx.clients.account()
        daemon = await ctx.clients.daemon(account, "gone:echo", where=here)
        callers = [await ctx.clients.caller(account, there if i else here) for i in range(CALLS)]
        await callers[1].call("gone:echo", target=daemon, group="before")
        await daemon.close()
        await together(caller.call("gone:echo", target=daemon, group="call") for caller in callers)

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                ended_with("ends", "not_available", CALLS, group="call"),
                duration("not_available", 1.0, GRACE_MS + 50, only_ok=False, group="call"),
                not_before("not_available", GRACE_MS, group="call"),
            ),
        )
