"""A hundred turns whose readers are cut off again and again, a third of the cuts as the turn ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from moorage_chaos.accounts import Account
from moorage_chaos.browser import MISSING, browser_path, pages
from moorage_chaos.checkers import Checker, judge
from moorage_chaos.checkers.bite import bit, reached
from moorage_chaos.checkers.logged import each_once, log_order, overlapped, turns_ended
from moorage_chaos.drivers.base import Can, Setup
from moorage_chaos.faults.link import Down, Slow
from moorage_chaos.history import History
from moorage_chaos.readers import Rendering, reader
from moorage_chaos.scenarios._common import together
from moorage_chaos.scenarios._logs import LOGS, Logs
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

TURNS, AT_ONCE = 100, 34
EVERY_MS = 30
"""Between two reports of a turn."""
REDIS_AWAY_MS = 5.0
"""Each way between replicas and Redis, as in another region: a replay is as long under way as it is there, so that what
is reported meanwhile comes both ways."""
SHORTEST_S, LONGEST_S = 0.5, 5.0
PAGE_EACH = 10
"""One turn in so many is read by a page in a browser."""
CLOSING = 2 / 3
"""Of the turns lose their reader as they end: a third of all cuts."""
END_S = 15.0
"""After the turn's end or the last cut, whichever is later, until its result must be rendered: the longest wait
between two tries is 8 s."""


@dataclass(frozen=True)
class Plan:
    """One turn: its length, what is cut before its end (pause while live, length) and at its end, all in s.

    ``closing``: ``(before the end, length)`` of the cut in the closing moment."""

    length: float
    cuts: list[tuple[float, float]]
    closing: tuple[float, float] | None


def away(cut: float) -> float:
    """How long a client that was cut off for so long is likely to be away: it tries after 0.8, 2.4, 5.6, 12 s."""
    return next(at * 1.1 for at in (0.8, 2.4, 5.6, 12.0) if at > cut)


def plan(rng: random.Random) -> Plan:
    """1-3 cuts. The turn lasts as long as they are expected to take."""
    lengths = [rng.uniform(SHORTEST_S, LONGEST_S) for _ in range(rng.choice((1, 2, 3)))]
    closing = (rng.uniform(0.2, 0.5), lengths.pop()) if rng.random() < CLOSING else None
    cuts = [(rng.uniform(0.4, 1.0), length) for length in lengths]
    return Plan(sum(pause + away(length) for pause, length in cuts) + 1.5, cuts, closing)


class Resume(Scenario):
    name = "resume"
    promise = (
        "100 turns with about 200 cuts of 0.5-5 s, round robin over 2 replicas: every event of every turn is rendered "
        "once, in order, each turn's task_result always"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"client-links", "redis-links"})
    setup: ClassVar[Setup | None] = replace(LOGS, redis_links=True)
    bound_s = 180.0
    mutants: ClassVar[tuple[str, ...]] = ("skip-replay", "skip-dedupe", "swap-logged", "double-logged")

    async def run(self, ctx: Context) -> None:
        logs = Logs(ctx)
        accounts = [ctx.clients.account() for _ in range(10)]
        places = asyncio.Semaphore(AT_ONCE)
        ended = 0

        async with AsyncExitStack() as stack:
            for place in ctx.driver.replicas:
                slow = Slow(f"{place.link}:redis", delay_ms=REDIS_AWAY_MS)
                evidence = await ctx.faults.inject(slow)
                if "policed" in evidence.proof.get("how", ""):
                    # No delay but an outage; on pods Redis is not next door anyway.
                    await ctx.faults.undo(slow)
            browser = None
            if browser_path() is not None:
                browser = await stack.enter_async_context(pages(ctx.clients))

            async def one(n: int, plan: Plan) -> Rendering:
                nonlocal ended
                account, door = accounts[n % len(accounts)], f"resume-{n}"
                async with places:
                    session, url = await logs.session(account), await ctx.driver.door(door)
                    made: Rendering
                    if browser is not None and n % PAGE_EACH == 0:
                        made = await browser.reader(account, session, door=url)
                    else:
                        made = await reader(ctx.clients, account, session, door=url)
                    await play_turn(ctx, logs, account, made, door, plan, n)
                ended += 1
                ctx.progress(f"{ended} of {TURNS} turns")
                return made

            readers = await together(one(n, plan(ctx.random)) for n in range(TURNS))
            await logs.finish(*readers)

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                reached("cuts of a reader that was there", 180, "cuts", lambda h: float(len(hits(h)))),
                reached("turns cut in the closing moment", 40, "turns", closing),
                in_browsers(TURNS // PAGE_EACH),
                overlapped(0.2),
                each_once(TURNS * 50),
                log_order(),
                turns_ended(TURNS),
            ),
        )


async def play_turn(
    ctx: Context, logs: Logs, account: Account, made: Rendering, door: str, plan: Plan, n: int
) -> None:
    """One turn, from its start to its result at the reader (or the bound)."""
    loop = asyncio.get_running_loop()
    count = int(plan.length * 1000 / EVERY_MS)
    await logs.turn(account, made, {"count": count, "everyMs": EVERY_MS, "deltas": n % 2}, "chaos-turn")
    await made.until("session_created", 10.0)
    end = loop.time() + plan.length

    async def cut(length: float, **tags: Any) -> None:
        ctx.history.note("cut", client=made.name, lengthMs=length * 1000, live=made.live, **tags)
        async with ctx.faults.hold(Down(door)):
            await asyncio.sleep(length)

    for pause, length in plan.cuts:
        await ctx.clients.until(lambda: made.live, 20.0, f"{made.name} live")
        await asyncio.sleep(pause)
        await cut(length)
    if plan.closing is not None:
        await asyncio.sleep(end - plan.closing[0] - loop.time())
        await cut(plan.closing[1], closing=True)
    await made.until("task_result", max(0.0, end - loop.time()) + END_S)


def in_browsers(expected: int) -> Checker:
    """So many of the turns were read by moorage.js in a browser."""

    def check_in_browsers(history: History) -> Iterator[Promise]:
        count = len(history.notes("reader", kind="chromium"))
        yield bit("turns read in a browser", f">= {expected}", count, "turns", count >= expected,
                  "" if count else MISSING)  # fmt: skip

    return check_in_browsers


def hits(history: History) -> list[float]:
    """Lengths of the cuts that met a live reader, s."""
    return [note.value["lengthMs"] / 1000 for note in history.notes("cut", live=True)]


def closing(history: History) -> float:
    """Turns whose last event was reported while their reader was cut off."""
    ends = {
        pair.value["session"]: pair.t0
        for pair in history.pairs("append")
        if pair.value["type"] == "task_result"
    }
    sessions = {note.value["reader"]: note.value["session"] for note in history.notes("reader")}
    return float(
        sum(
            note.t <= ends.get(sessions[note.value["client"]], 0) <= note.t + note.value["lengthMs"] * 1e6
            for note in history.notes("cut", closing=True)
        )
    )
