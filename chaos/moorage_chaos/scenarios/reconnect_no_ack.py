"""A daemon leaves and comes back without waiting for anything; callers call on."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

METHOD = "back:echo"
ROUNDS = 5
EACH = 5
LIMIT_MS = 3000
AWAY_S = 0.2


class ReconnectNoAck(Scenario):
    name = "reconnect-no-ack"
    promise = (
        "5 rounds: 5 calls while the daemon is away and 5 right after it registered without ack: all succeed"
    )
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("no-grace", "lose-registration")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        account = ctx.clients.account()
        daemon = await ctx.clients.daemon(account, METHOD, where=places[0])
        daemon.forget(METHOD)
        callers = await together(ctx.clients.caller(account, places[1]) for _ in range(EACH))
        for i in range(ROUNDS):
            await daemon.close()
            away = [
                ctx.clients.start(c.call(METHOD, target=daemon, timeout_ms=LIMIT_MS, group="away", round=i))
                for c in callers
            ]
            await asyncio.sleep(AWAY_S)
            await daemon.connect(places[0] if i % 2 else places[-1 if len(places) > 2 else 0])
            daemon.register(METHOD)
            daemon.forget(METHOD)
            after = [
                c.call(METHOD, target=daemon, timeout_ms=LIMIT_MS, group="after", round=i) for c in callers
            ]
            await together([*after, *away])

    def check(self, history: History) -> list[Promise]:
        total = ROUNDS * EACH
        return judge(
            history,
            (
                crossing(total, group="after"),
                all_ok("calls after it is back", total, group="after"),
                all_ok("calls while it is away", total, group="away"),
            ),
        )
