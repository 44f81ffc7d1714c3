"""One session read by several tabs, on two replicas and twice on one; older connections end while newer ones read."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.logged import each_once, log_order, stories, turns_ended
from moorage_chaos.drivers.base import Can, Setup
from moorage_chaos.history import History
from moorage_chaos.readers import Reader, reader
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios._logs import LOGS, Logs
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

SESSIONS = 6
COUNT, EVERY_MS = 120, 25


class TwoTabs(Scenario):
    name = "two-tabs"
    promise = (
        "a session on two replicas and twice on one: every tab gets every event once; the late end of an older "
        "connection takes nothing from the others"
    )
    safe = False
    lane: ClassVar[Lane] = "calm"
    needs: ClassVar[frozenset[Can]] = frozenset({"client-links"})
    setup: ClassVar[Setup | None] = LOGS
    mutants: ClassVar[tuple[str, ...]] = ("one-reader-per-session",)

    async def run(self, ctx: Context) -> None:
        logs = Logs(ctx)
        tabs = await together(self._session(ctx, logs, n) for n in range(SESSIONS))
        await logs.finish(*(tab for group in tabs for tab in group))

    async def _session(self, ctx: Context, logs: Logs, n: int) -> list[Reader]:
        one, two = replicas(ctx.driver)[:2] if n % 2 else reversed(replicas(ctx.driver)[:2])
        account = ctx.clients.account()
        session = await logs.session(account)
        # In this order: the two that end are older than those beside them on the same replica.
        leaving, breaking, second, third = [
            await reader(ctx.clients, account, session, where=where) for where in (two, two, two, two)
        ]
        first = await reader(ctx.clients, account, session, where=one)
        await logs.turn(account, first, {"count": COUNT, "everyMs": EVERY_MS}, "chaos-turn")
        await first.until("session_created", 10.0)
        await asyncio.sleep(COUNT * EVERY_MS / 3000)
        await leaving.close(early=True)
        await asyncio.sleep(COUNT * EVERY_MS / 3000)
        breaking.abort()
        tabs = [first, second, third, breaking]
        await together(tab.until("task_result", 20.0) for tab in tabs)
        return tabs

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                reached("sessions on two replicas, and twice on one", SESSIONS, "sessions", _spread),
                each_once(SESSIONS * 4 * COUNT),
                log_order(),
                turns_ended(SESSIONS),
            ),
        )


def _spread(history: History) -> float:
    at: dict[str, list[str]] = {}
    for note in history.notes("reader"):
        at.setdefault(note.value["session"], []).append(note.value["at"])
    rendered = {story.session for story in stories(history) if story.rendered}
    return float(
        sum(
            session in rendered and len(set(links)) == 2 and max(map(links.count, links)) >= 2
            for session, links in at.items()
        )
    )
