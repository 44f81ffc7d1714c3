"""A rolling deployment under load, then the sudden death of one replica."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

from moorage_chaos import ours
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import fault_happened, killed, reached
from moorage_chaos.checkers.drain import drain_pace, only_lost_at_cuts
from moorage_chaos.checkers.ends import all_ok, typed_ends
from moorage_chaos.checkers.latency import faults
from moorage_chaos.checkers.recovery import back_within
from moorage_chaos.children import child
from moorage_chaos.client import Client
from moorage_chaos.drivers.base import Can, DriverError, Setup
from moorage_chaos.faults.process import Kill, Roll
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

DAEMONS, CALLERS, PLAIN, IDLE = 30, 3, 4, 1000
DRAIN_MS = 4000
"""Shorter than the default 20 s, so that three drains fit into the row; the pace is judged against it."""

EVERY_MS = 100
PLAIN_EVERY_MS = 200
LONGEST_S = 60.0


class RollingDeploy(Scenario):
    name = "rolling-deploy"
    promise = (
        "a roll under 30 daemons, 3 callers and 1000 idle clients loses no call of ours; after a SIGKILL 27/30 are "
        "back within 1 s, 30/30 within 5 s; reconnects keep the drain's pace"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"kill", "terminate"})
    setup = Setup(env={"MOORAGE_DRAIN_MS": str(DRAIN_MS)})
    bound_s = 120.0
    mutants: ClassVar[tuple[str, ...]] = ("no-drain", "lose-registration")

    async def run(self, ctx: Context) -> None:
        clients, account = ctx.clients, ctx.clients.account()
        daemons = await together(ours.daemon(clients, account, f"roll:{i}") for i in range(DAEMONS))
        callers = await together(ours.caller(clients, account) for _ in range(CALLERS))
        plain_daemons = await together(
            clients.daemon(account, f"plain:{i}", kind="plain") for i in range(PLAIN)
        )
        plain_callers = await together(clients.caller(account, kind="plain") for _ in range(PLAIN))
        crowd = [clients.account() for _ in range(10)]
        config = {"url": ctx.driver.url, "count": IDLE, "tokens": [await clients.token(a) for a in crowd]}
        async with child("moorage_chaos.idle") as process:
            stdin, stdout = process.stdin, process.stdout
            assert stdin is not None
            assert stdout is not None
            stdin.write(json.dumps(config).encode() + b"\n")
            async with asyncio.timeout(LONGEST_S):
                up = json.loads(await stdout.readline())["up"]
            if up < IDLE:
                raise DriverError(f"only {up} of {IDLE} idle clients connected")
            ctx.progress("rolling")
            over = asyncio.Event()

            async def call(n: int) -> None:
                target = daemons[n % DAEMONS]
                await callers[n % CALLERS].invoke(
                    f"roll:{n % DAEMONS}", target=target, sleep_ms=30, timeout_ms=10_000, group="ours"
                )

            async def plain_call(n: int) -> None:
                caller: Client = plain_callers[n % PLAIN]
                if caller.up:
                    await caller.call(
                        f"plain:{n % PLAIN}",
                        target=plain_daemons[n % PLAIN],
                        sleep_ms=30,
                        timeout_ms=10_000,
                        group="plain",
                    )

            loads = [
                clients.start(play(every(EVERY_MS, LONGEST_S * 1000), call, until=over.is_set)),
                clients.start(play(every(PLAIN_EVERY_MS, LONGEST_S * 1000), plain_call, until=over.is_set)),
            ]
            await asyncio.sleep(1.0)
            await ctx.faults.inject(Roll())
            await asyncio.sleep(1.0)
            over.set()
            await together(loads)

            ctx.progress("SIGKILL of one replica")
            await ctx.faults.inject(Kill(replicas(ctx.driver)[-1]))
            await asyncio.sleep(5.2)
            await together(
                callers[i % CALLERS].invoke(f"roll:{i}", target=daemon, timeout_ms=3000, group="after-kill")
                for i, daemon in enumerate(daemons)
            )
            stdin.write(b"report\n")
            async with asyncio.timeout(10):
                _merge(ctx.history, json.loads(await stdout.readline()))

    def check(self, history: History) -> list[Promise]:
        def steps(history: History) -> int:
            rolls = [p for p in history.pairs("fault") if p.value["kind"] == Roll.kind and p.phase == "ok"]
            codes = [step["proof"]["exitCode"] for roll in rolls for step in roll.result["proof"]["steps"]]
            return codes.count(0)

        def during(history: History) -> int:
            return [p.value.get("group") for p in history.pairs("call")].count("ours")

        return judge(
            history,
            (
                reached("replicas rolled, exit code 0", 2, "replicas", steps),
                reached("calls during the roll", 30, "calls", during),
                fault_happened(Kill.kind, 1, killed),
                all_ok("calls with our clients during the roll", 30, group="ours"),
                only_lost_at_cuts("calls of plain clients lost outside a cut", group="plain"),
                typed_ends(lost_callers=True, group=("plain", "ours")),
                drain_pace("idle", DRAIN_MS),
                back_within(
                    "our daemons registered",
                    "our-daemon",
                    DAEMONS,
                    {1.0: 27, 5.0: DAEMONS},
                    faults(Kill.kind),
                ),
                all_ok("calls after the SIGKILL", DAEMONS, group="after-kill"),
            ),
        )


def _merge(history: History, report: dict[str, Any]) -> None:
    """Take what the idle clients saw into the history, at the times they saw it."""
    for name, t0, t1, replica in report["connects"]:
        history.record(
            "connect", t0, t1, {"client": name, "kind": "idle"}, {"replica": replica}, process=name
        )
    for name, t, replica, cause in report["downs"]:
        history.note("down", process=name, t=t, client=name, replica=replica, cause=cause)
