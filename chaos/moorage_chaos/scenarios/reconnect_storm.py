"""A daemon's connection breaks again and again under load."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Literal

from moorage_chaos import ours
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.storm import cuts_with_calls, outside_cuts_ok, typed_soon_after_cut
from moorage_chaos.history import History
from moorage_chaos.load import every, jittered, play
from moorage_chaos.scenarios._common import replicas
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

CUTS = 5
EVERY_S = 1.5
SLEEP_MS = 100
"""How long each call is at work: half of the callers' time, so that every cut meets some."""


class ReconnectStorm(Scenario):
    name = "reconnect-storm"
    promise = (
        "5 callers under 5 cuts of the daemon: every call not in flight at a cut succeeds, those in flight end "
        "typed within 20 ms or, with onTargetLost wait, succeed"
    )
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("no-fast-fail", "no-grace", "end-falsely")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        account = ctx.clients.account()
        daemon = await ours.daemon(ctx.clients, account, "storm:fail", where=places[0])
        daemon.add_echo("storm:wait", resumable=True)
        await daemon.registered(cluster=True)
        callers = [
            await ours.caller(ctx.clients, account, where=places[(i + 1) % len(places)]) for i in range(5)
        ]
        total_ms = (CUTS + 1) * EVERY_S * 1000

        async def load(i: int) -> None:
            mode: Literal["fail", "wait"] = "wait" if i >= 3 else "fail"

            async def call(n: int) -> None:
                await callers[i].invoke(
                    f"storm:{mode}",
                    target=daemon,
                    sleep_ms=SLEEP_MS,
                    on_lost=mode,
                    timeout_ms=5000,
                    group=mode,
                    request_id=f"{i}-{n}",
                )

            await play(jittered(every(200, total_ms, first_ms=i * 40), 20, ctx.random), call)

        async def cut() -> None:
            for _ in range(CUTS):
                await asyncio.sleep(EVERY_S)
                daemon.cut()

        async with asyncio.TaskGroup() as group:
            group.create_task(cut())
            for i in range(5):
                group.create_task(load(i))

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                reached("cuts with calls in flight", CUTS, "cuts", cuts_with_calls("our-daemon-1")),
                outside_cuts_ok("our-daemon-1", group=("fail", "wait")),
                typed_soon_after_cut("our-daemon-1", 20.0, group="fail"),
                outside_cuts_ok("our-daemon-1", all_of_them=True, group="wait"),
            ),
        )
