"""An idle daemon stays callable although it sends nothing, and Redis keeps nothing about it."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.checkers.keyspace import no_rpc_state
from moorage_chaos.history import History
from moorage_chaos.load import at, play
from moorage_chaos.scenarios._common import list_keys, replicas
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

METHOD = "idle:echo"
CALLS_AT_MS = (5_000, 30_000, 55_000, 65_000, 75_000)


class TtlFree(Scenario):
    name = "ttl-free"
    promise = (
        "an idle daemon answers at +5, 30, 55, 65 and 75 s; no rpc key, no key with a TTL that routing needs"
    )
    safe = True
    lane: ClassVar[Lane] = "idle"
    bound_s = 100.0
    mutants: ClassVar[tuple[str, ...]] = ("leak-key",)

    async def run(self, ctx: Context) -> None:
        here, there = replicas(ctx.driver)[:2]
        account = ctx.clients.account()
        daemon = await ctx.clients.daemon(account, METHOD, where=here)
        caller = await ctx.clients.caller(account, there)
        await list_keys(ctx.driver, ctx.history)

        async def call(i: int) -> None:
            await caller.call(METHOD, target=daemon, group="call", atMs=CALLS_AT_MS[i])

        await play(at(*CALLS_AT_MS), call)
        await list_keys(ctx.driver, ctx.history)

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                crossing(5, group="call"),
                all_ok("calls", 5, group="call"),
                no_rpc_state(2),
            ),
        )
