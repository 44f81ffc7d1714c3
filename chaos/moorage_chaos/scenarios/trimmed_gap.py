"""Readers that come back too late, or with a place that the log does not have."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from moorage_chaos.accounts import Account
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.gaps import gaps_said, told_of
from moorage_chaos.checkers.logged import each_once, log_order, turns_ended
from moorage_chaos.drivers.base import Can, DriverError, Setup
from moorage_chaos.faults.link import Down
from moorage_chaos.history import History
from moorage_chaos.probes import WAYS, Place, ask
from moorage_chaos.readers import Reader, reader
from moorage_chaos.scenarios._common import together
from moorage_chaos.scenarios._logs import TASKS, Logs
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

KEPT, TTL_S = 100, 6.0
TURNS, COUNT, EVERY_MS = 6, 900, 8
CUT_S = 4.5
"""Over 500 events at that pace: more than a log of 100 keeps, which Redis trims by whole nodes of 100."""
GARBAGE = (
    "",
    "x",
    "1",
    "1-",
    "-1",
    "1-2-3",
    " 1-0",
    "1-0 ",
    "+1-0",
    "1.5-0",
    "18446744073709551616-0",
    "\uff11-0",
)


class TrimmedGap(Scenario):
    name = "trimmed-gap"
    promise = (
        "a cut longer than the log keeps, an expired log, another epoch, a garbage id: replay_gap with the right "
        "reason, never a partial replay; rebuilt from the turn"
    )
    safe = False
    lane: ClassVar[Lane] = "calm"
    needs: ClassVar[frozenset[Can]] = frozenset({"client-links"})
    setup: ClassVar[Setup | None] = Setup(
        replicas=2,
        workers=2,
        env={
            **TASKS,
            "MOORAGE_EVENT_LOG_MAXLEN": str(KEPT),
            "MOORAGE_EVENT_LOG_TTL_MS": str(int(TTL_S * 1000)),
        },
    )
    mutants: ClassVar[tuple[str, ...]] = ("partial-replay",)

    async def run(self, ctx: Context) -> None:
        logs = Logs(ctx)
        account = ctx.clients.account()
        readers = await together(
            [*(self._turn(ctx, logs, n) for n in range(TURNS)), self._asks(ctx, logs, account)]
        )
        await logs.finish(*(one for one in readers if isinstance(one, Reader)))

    async def _turn(self, ctx: Context, logs: Logs, n: int) -> Reader:
        """A reader of the product's own that is away while more is reported than the log keeps."""
        account, door = ctx.clients.account(), f"trimmed-{n}"
        made = await reader(
            ctx.clients, account, await logs.session(account), door=await ctx.driver.door(door)
        )
        await logs.turn(account, made, {"count": COUNT, "everyMs": EVERY_MS}, "chaos-turn")
        await made.until("item", 10.0)
        async with ctx.faults.hold(Down(door)):
            await asyncio.sleep(CUT_S)
        await made.until("task_result", 20.0)
        return made

    async def _asks(self, ctx: Context, logs: Logs, account: Account) -> None:
        clients = ctx.clients
        session = await logs.session(account)
        made = [(await logs.append(account, session, {"mark": f"gap-{n}"})).event for n in range(5)]
        ends = {p.invoke.id: p.result for p in ctx.history.pairs("append")}
        ids = [str(ends[event.id]["id"]) for event in made]
        epoch, last = await self._head(ctx, account, session)
        await ask(clients, account, session, Place(ids[1], 2, epoch), case="kept", expect="none", count=3)
        await ask(clients, account, session, Place("0-0"), case="begin", expect="none", count=5)
        await ask(clients, account, session, Place(ids[4], 5, epoch), case="end", expect="none", count=0)
        for garbage in GARBAGE:
            await ask(clients, account, session, Place(garbage), case="garbage", expect="invalid")
        await ask(clients, account, session, Place(ids[1], 2, "elsewhere"), case="epoch", expect="epoch")
        beyond = f"{int(last.partition('-')[0]) + 60_000}-0"
        await ask(clients, account, session, Place(beyond), case="beyond", expect="epoch")
        await asyncio.sleep(TTL_S + 1.0)
        old = Place(ids[1], 2, epoch)
        await ask(clients, account, session, old, case="expired", expect="expired", missed=3)
        await self._trimmed(ctx, logs, account)

    async def _trimmed(self, ctx: Context, logs: Logs, account: Account) -> None:
        """With last_seq and epoch the gap is counted: what is gone, not what is still kept."""
        session = await logs.session(account)
        first = await logs.append(account, session, {"mark": "trimmed-0"})
        for begin in range(1, 401, 20):
            await together(
                logs.append(account, session, {"mark": f"trimmed-{n}"}) for n in range(begin, begin + 20)
            )
        ends = {p.invoke.id: p.result for p in ctx.history.pairs("append")}
        epoch, _ = await self._head(ctx, account, session)
        place = Place(str(ends[first.event.id]["id"]), 1, epoch)
        oldest = await self._oldest_seq(ctx, account, session)
        case = {"case": "trimmed", "expect": "trimmed"}
        await ask(ctx.clients, account, session, place, missed=oldest - 2, **case)
        await ask(ctx.clients, account, session, Place(place.id), **case)

    async def _head(self, ctx: Context, account: Account, session: str) -> tuple[str, str]:
        """Epoch and last id, as a WebSocket without a place is told."""
        frames: list[dict[str, Any]] = await WAYS["websocket"](ctx.clients, account, session, Place("0-0"))
        ready = frames[0]
        return str(ready["epoch"]), str(ready["lastEventId"])

    async def _oldest_seq(self, ctx: Context, account: Account, session: str) -> int:
        """Of the oldest entry that Redis still keeps, read from Redis itself."""
        import redis.asyncio

        client = redis.asyncio.Redis.from_url(ctx.driver.redis.url, socket_timeout=5, decode_responses=True)
        try:
            entries: Any = await client.xrange(f"moorage:events:{{{session}}}", count=1)
        finally:
            await client.aclose()
        if not entries:
            raise DriverError("the log is empty")
        return int(entries[0][1]["seq"])

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                gaps_said(4 * (len(GARBAGE) + 3) + 3 * 5 - 2),
                told_of("trimmed", TURNS),
                each_once(TURNS * 300, gaps=True, kind="python"),
                log_order(),
                turns_ended(TURNS),
            ),
        )
