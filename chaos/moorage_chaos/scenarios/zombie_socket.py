"""The old connection of a daemon is half-open; the daemon has registered anew elsewhere."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.ends import all_ok, answered_by_target
from moorage_chaos.checkers.latency import duration
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

ROUNDS = 10
AT_ONCE_MS = 50.0
"""What "at once" means: the bar of other answers that wait for nothing."""


class ZombieSocket(Scenario):
    name = "zombie-socket"
    promise = "old daemon socket half-open, a new one registered elsewhere: calls go to the new one at once"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("oldest-wins",)

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        account = ctx.clients.account()
        for i in range(ROUNDS):
            method = f"zombie:{i}"
            old_place, new_place, there = (places[(i + n) % len(places)] for n in range(3))
            old = await ctx.clients.daemon(account, method, where=old_place)
            callers = await together(ctx.clients.caller(account, place) for place in (old_place, there))
            old.wire.freeze()
            new = await ctx.clients.daemon(account, method, where=new_place)
            await together(
                caller.call(method, target=new, group="call", timeout_ms=5000) for caller in callers
            )

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                all_ok("calls", 2 * ROUNDS, group="call"),
                answered_by_target("answered by the new socket", group="call"),
                duration("call", 1.0, AT_ONCE_MS, group="call"),
            ),
        )
