"""Callers cancel, leave, and set deadlines from 100 ms to two minutes."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.cancel import cancel_told
from moorage_chaos.checkers.ends import all_ok, ended_with
from moorage_chaos.checkers.latency import duration
from moorage_chaos.checkers.runs import no_late_runs
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, running, together
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

METHOD = "deadline:sleep"
EACH = 10
SHORT_MS = 100
LONG_MS = 120_000


class CancelAndDeadline(Scenario):
    name = "cancel-and-deadline"
    promise = "callers cancel, leave, set 100 ms and 120 s deadlines: target told, no late run, the 120 s call works"
    safe = True
    lane: ClassVar[Lane] = "idle"
    bound_s = 150.0
    mutants: ClassVar[tuple[str, ...]] = ("ignore-cancel", "hang-call", "late-run")

    async def run(self, ctx: Context) -> None:
        here, there = replicas(ctx.driver)[:2]
        clients, account = ctx.clients, ctx.clients.account()
        daemon = await clients.daemon(account, METHOD, where=here)
        caller = await clients.caller(account, there)
        long = clients.start(
            caller.call(METHOD, target=daemon, sleep_ms=LONG_MS, timeout_ms=LONG_MS + 5000, group="long")
        )

        for place in (there, here):
            group = f"cancel-{place.link}"
            asker = await clients.caller(account, place)
            calls = [
                clients.start(
                    asker.call(
                        METHOD,
                        target=daemon,
                        sleep_ms=20_000,
                        request_id=f"{group}-{i}",
                        group=group,
                        kind="cancel",
                    )
                )
                for i in range(EACH)
            ]
            await running(clients, EACH, group)
            for i in range(EACH):
                asker.send("rpc-cancel", {"requestId": f"{group}-{i}"})
                ctx.history.note("cancel", group=group, how="rpc-cancel")
            await together(calls)

        leavers = await together(clients.caller(account, there) for _ in range(EACH))
        calls = [
            clients.start(c.call(METHOD, target=daemon, sleep_ms=20_000, group="leave", kind="leave"))
            for c in leavers
        ]
        await running(clients, EACH, "leave")
        for leaver in leavers:
            ctx.history.note("cancel", group="leave", how="left")
            await leaver.close()
        await together(calls)

        await together(
            caller.call(METHOD, target=daemon, sleep_ms=3000, timeout_ms=SHORT_MS, group="short")
            for _ in range(EACH)
        )

        # In the grace: neither an expired nor a cancelled call may run when the method appears afterwards.
        late = "deadline:late"
        expired = [
            clients.start(caller.call(late, timeout_ms=SHORT_MS, group="expired", request_id=f"e{i}"))
            for i in range(EACH)
        ]
        waiting = [
            clients.start(caller.call(late, group="waiting", request_id=f"w{i}", timeout_ms=10_000))
            for i in range(EACH)
        ]
        await together(expired)
        for i in range(EACH):
            caller.send("rpc-cancel", {"requestId": f"w{i}"})
        await together(waiting)
        await daemon.serve(late)
        await asyncio.sleep(1.0)
        await long

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                cancel_told("cancel", 2 * EACH, 100.0),
                cancel_told("leave", EACH, 100.0),
                ended_with("cancelled calls", "cancelled", 2 * EACH, kind="cancel"),
                ended_with("calls over 100 ms", "timeout", EACH, group="short"),
                duration("timeout", 1.0, SHORT_MS + 50.0, only_ok=False, group="short"),
                ended_with("deadline in the grace", "not_available", EACH, group="expired"),
                duration("deadline in the grace", 1.0, SHORT_MS + 50.0, only_ok=False, group="expired"),
                ended_with("cancelled in the grace", "cancelled", EACH, group="waiting"),
                no_late_runs(group=("expired", "waiting", "short", "leave")),
                all_ok("the 120 s call", 1, group="long"),
            ),
        )
