"""The Redis of events is stopped in the middle of tasks: once with the state elsewhere, once with all in it."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Literal

import aiohttp

from moorage_chaos.accounts import Account
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import fault_happened, killed
from moorage_chaos.checkers.logged import each_once, holes_told, log_order
from moorage_chaos.checkers.outage import (
    announced_within,
    done_soon_after,
    done_while_away,
    ids_again_within,
    nobody_died,
    refused_while_away,
    under_way,
)
from moorage_chaos.drivers.base import Can, Setup
from moorage_chaos.faults.redis import Kill
from moorage_chaos.history import History
from moorage_chaos.readers import Reader, reader
from moorage_chaos.scenarios._common import together
from moorage_chaos.scenarios._logs import TASKS, Logs
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

Variant = Literal["separate", "shared"]
TURNS = 4
COUNT, EVERY_MS = 50, 100
"""5 s a turn: it is to end while Redis is away."""
BEFORE_S, AWAY_S = 1.5, 8.0
AGAIN_S = 30.0
"""Events carry ids again and the hole is announced at most this long after Redis is back."""
SEPARATE = Setup(replicas=2, workers=2, state_redis=True, env=TASKS)
SHARED = Setup(replicas=2, workers=2, redis_keep=True, env=TASKS)


class RedisOutageMidTask(Scenario):
    name = "redis-outage-mid-task"
    promise = (
        "the event Redis stopped in mid task. State elsewhere: the task is done meanwhile. One Redis for both: 503 "
        "with Retry-After meanwhile, done <= 2 s after. Both: ids again and the hole announced <= 30 s after"
    )
    safe = False
    lane: ClassVar[Lane] = "calm"
    needs: ClassVar[frozenset[Can]] = frozenset({"redis-kill", "redis-keep"})
    setup: ClassVar[Setup | None] = SEPARATE
    bound_s = 150.0
    mutants: ClassVar[tuple[str, ...]] = ("silent-hole", "result-needs-log")

    async def run(self, ctx: Context) -> None:
        await self._play(ctx, "separate", keep=False)
        # This row is two systems one after the other. What comes next in the lane builds its own.
        await ctx.driver.start(SHARED)
        await self._play(ctx, "shared", keep=True)

    async def _play(self, ctx: Context, variant: Variant, *, keep: bool) -> None:
        ctx.progress(f"{variant} state")
        logs = Logs(ctx)
        account = ctx.clients.account()
        sessions = await together(logs.session(account) for _ in range(TURNS))
        readers: list[Reader] = await together(reader(ctx.clients, account, session) for session in sessions)
        task = {"count": COUNT, "everyMs": EVERY_MS}
        await together(logs.turn(account, one, task, "chaos-turn", variant=variant) for one in readers)
        over = asyncio.Event()
        polling = ctx.clients.start(self._poll(ctx, logs, account, variant, over))
        await asyncio.sleep(BEFORE_S)
        async with ctx.faults.hold(Kill(keep=keep)):
            await asyncio.sleep(AWAY_S)
        ctx.history.note("redis-back", variant=variant)
        await together(self._until_ids(ctx, logs, account, one, variant) for one in readers)
        over.set()
        await polling
        await logs.finish(*readers)

    async def _poll(
        self, ctx: Context, logs: Logs, account: Account, variant: Variant, over: asyncio.Event
    ) -> None:
        """``GET /v1/tasks/{id}`` of each task every 100 ms, each with its status, for as long as the row lasts."""
        headers = {"Authorization": f"Bearer {await ctx.clients.token(account)}"}
        timeout = aiohttp.ClientTimeout(total=5.0)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http:

            async def look(task: str) -> None:
                operation = ctx.history.begin("poll", task=task, variant=variant)
                try:
                    async with http.get(f"{ctx.driver.url}/v1/tasks/{task}") as answer:
                        body: Any = await answer.json(content_type=None)
                        status = body.get("status") if isinstance(body, dict) else None
                        retry = answer.headers.get("Retry-After")
                        operation.ok(code=answer.status, status=status, retryAfter=retry)
                except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                    operation.info(error=f"{type(error).__name__}: {error}")

            last = False
            while not last:
                last = over.is_set()  # one look more: what ended with the outage is seen, too
                await asyncio.gather(*(look(task) for _, task in logs.tasks))
                await asyncio.sleep(0.1)

    async def _until_ids(
        self, ctx: Context, logs: Logs, account: Account, one: Reader, variant: Variant
    ) -> None:
        """An event each 500 ms until one has an id again, and then until the reader has heard of the hole."""
        end = asyncio.get_running_loop().time() + AGAIN_S
        number = 0
        while asyncio.get_running_loop().time() < end:
            number += 1
            mark = {"mark": f"{one.session}:after-{number}"}
            made = await logs.append(account, one.session, mark, variant=variant, group="after")
            result = next(p.result for p in reversed(ctx.history.pairs("append")) if p.invoke is made.event)
            if result.get("id") is not None:
                await one.until("unlogged", max(0.0, end - asyncio.get_running_loop().time()))
                return
            await asyncio.sleep(0.5)

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                fault_happened(Kill.kind, 2, killed),
                under_way(2 * TURNS),
                done_while_away(TURNS, variant="separate"),
                refused_while_away(20, variant="shared"),
                done_soon_after(TURNS, 2.0, variant="shared"),
                nobody_died(),
                ids_again_within(AGAIN_S, 2 * TURNS),
                announced_within(AGAIN_S, 2 * TURNS),
                each_once(2 * TURNS * 10, gaps=True),
                holes_told(1),
                log_order(),
            ),
        )
