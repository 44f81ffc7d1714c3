"""A handler opens a session socket of its own and registers there; that is called 50 ms later."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

ROUNDS = 15
PAUSE_S = 0.05
SPAWN = "nested:spawn"


class NestedSessionFlow(Scenario):
    name = "nested-session-flow"
    promise = "15 x a spawn call whose handler opens a session socket, then a call to that after 50 ms: 30/30"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("lose-registration", "hang-call")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        account = ctx.clients.account()
        machine = await ctx.clients.daemon(account, SPAWN, where=places[0])
        caller = await ctx.clients.caller(account, places[1])

        async def spawn(params: dict[str, Any]) -> dict[str, Any]:
            number = params["round"]
            session = ctx.clients.client(
                account, "session", clientType="session-scoped", sessionId=f"nested-{number}"
            )
            await session.connect(places[number % len(places)])
            session.register(f"nested:{number}")
            return {}

        machine.behaviours[SPAWN] = spawn
        for i in range(ROUNDS):
            await caller.call(SPAWN, target=machine, params={"round": i}, timeout_ms=5000, group="spawn")
            await asyncio.sleep(PAUSE_S)
            await caller.call(f"nested:{i}", timeout_ms=5000, group="session")

    def check(self, history: History) -> list[Promise]:
        return judge(history, (all_ok("calls", 2 * ROUNDS, group=("spawn", "session")),))
