"""A thousand readers, each cut ten times, through ten rolls and five restarts of the Redis of events."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import fault_happened, killed, reached
from moorage_chaos.checkers.logged import away_at_most, each_once, holes_told, log_order, turns_ended
from moorage_chaos.drivers.base import Can, Setup
from moorage_chaos.faults import redis
from moorage_chaos.faults.link import Cut
from moorage_chaos.faults.process import Roll
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import together
from moorage_chaos.scenarios._crowds import crowd
from moorage_chaos.scenarios._logs import TASKS, Logs
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

SESSIONS, PER_SESSION = 100, 10
PROCESSES = 4
"""Of readers."""
DOORS = 20
"""Ways in, each shared by 50 readers that are cut together."""
ROUNDS = 10
"""In each: every door is cut once, all replicas are rolled; after every other one Redis restarts. Not among the cuts:
whoever is cut while the log is away cannot be back before it is, and its pauses have grown by then (PROTOCOL: to
8 s)."""
EVERY_MS = 1000
RESTARTS = ROUNDS // 2
DRAIN_MS = 1500
REDIS_AWAY_S = 0.5
ROUND_S = 12.0
RESTART_S = 8.0
"""What a restart of Redis takes on pods, at most."""
AFTER_S = 20.0
"""The tasks report on for so long after the last round, or until then if rounds take longer: their results are not to
fall into an outage."""
BACK_S = 3.0


class Resume1000(Scenario):
    name = "resume-1000"
    promise = (
        "1000 clients x 10 cuts, 10 rolls, 5 Redis restarts: nothing lost, doubled or out of order, every gap "
        "announced, all back <= 3 s"
    )
    safe = False
    on_demand: ClassVar[bool] = True
    needs: ClassVar[frozenset[Can]] = frozenset({"client-links", "terminate", "redis-kill", "redis-keep"})
    setup: ClassVar[Setup | None] = Setup(
        replicas=2,
        workers=2,
        redis_keep=True,
        env={
            **TASKS,
            "MOORAGE_DRAIN_MS": str(DRAIN_MS),
            "MOORAGE_WORKER_CONCURRENCY": str(SESSIONS),
        },
    )
    bound_s = 420.0
    mutants: ClassVar[tuple[str, ...]] = ("skip-replay", "skip-dedupe")

    async def run(self, ctx: Context) -> None:
        logs = Logs(ctx)
        accounts = [ctx.clients.account() for _ in range(10)]
        doors = [await ctx.driver.door(f"crowd-{n}") for n in range(DOORS)]
        sessions = [await logs.session(accounts[n % len(accounts)]) for n in range(SESSIONS)]
        rows: list[dict[str, str]] = []
        for n, session in enumerate(sessions):
            token = await ctx.clients.token(accounts[n % len(accounts)])
            # The readers of a session come through ten doors, so that a cut leaves it readers on both replicas.
            rows += [
                {
                    "name": f"crowd-{n}-{i}",
                    "session": session,
                    "url": doors[(n + i * 2) % DOORS],
                    "token": token,
                }
                for i in range(PER_SESSION)
            ]
        async with AsyncExitStack() as stack:
            crowds = [
                await stack.enter_async_context(crowd(ctx, rows[part::PROCESSES]))
                for part in range(PROCESSES)
            ]
            rounds_s = ROUNDS * ROUND_S + RESTARTS * RESTART_S
            task = {"count": int((rounds_s + AFTER_S) * 1000 / EVERY_MS), "everyMs": EVERY_MS}
            await together(
                logs.start(accounts[n % len(accounts)], session, task, "chaos-turn")
                for n, session in enumerate(sessions)
            )
            for n in range(ROUNDS):
                ctx.progress(f"round {n + 1} of {ROUNDS}")
                await together([self._cuts(ctx), ctx.faults.inject(Roll()), asyncio.sleep(ROUND_S)])
                if n % 2 == 0:
                    async with ctx.faults.hold(redis.Kill(keep=True)):
                        await asyncio.sleep(REDIS_AWAY_S)
            await together(one.until("task_result", RESTARTS * RESTART_S + AFTER_S + 30.0) for one in crowds)
            await together(one.end() for one in crowds)
        await logs.finish()

    async def _cuts(self, ctx: Context) -> None:
        """Each door once, at a moment of its own in the first two thirds of the round."""

        async def cut(door: str, at: float) -> None:
            await asyncio.sleep(at)
            await ctx.faults.inject(Cut(door))

        await together(cut(f"crowd-{n}", ctx.random.uniform(0, ROUND_S * 0.66)) for n in range(DOORS))

    def check(self, history: History) -> list[Promise]:
        total = SESSIONS * PER_SESSION
        return judge(
            history,
            (
                reached("readers cut off", total * ROUNDS * 0.8, "connections", _cut),
                fault_happened(Roll.kind, ROUNDS),
                fault_happened(redis.Kill.kind, RESTARTS, killed),
                each_once(total * 100, gaps=True),
                # Whether an outage leaves holes hangs on how busy the machine is; redis-restart demands some.
                holes_told(0),
                log_order(),
                turns_ended(SESSIONS),
                away_at_most(BACK_S, total * ROUNDS),
            ),
        )


def _cut(history: History) -> float:
    cuts = history.pairs("fault", lambda pair: pair.value["kind"] == Cut.kind)
    return float(sum(pair.result.get("proof", {}).get("connections", 0) for pair in cuts))
