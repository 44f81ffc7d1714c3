"""The worker of running tasks is killed, or stopped for too long, in the middle of a step."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import orjson

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import fault_happened, killed
from moorage_chaos.checkers.logged import each_once, log_order, turns_ended
from moorage_chaos.checkers.takeover import (
    interrupted_steps,
    one_result_each,
    only_latest_attempt,
    taken_over,
)
from moorage_chaos.drivers.base import Can, DriverError, Place, Setup
from moorage_chaos.faults.process import Kill, Pause
from moorage_chaos.history import History
from moorage_chaos.readers import Reader, reader
from moorage_chaos.scenarios._common import together
from moorage_chaos.scenarios._logs import LOGS, Logs
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise
from moorage_chaos.worker import PREFIX

KILLS, TASKS = 3, 6
ROUNDS = KILLS + 1
"""In the last one the worker is stopped, and wakes up when another has ended its tasks."""
SOON_S = 8.0
"""Until another worker reports: 4 s of silence (MOORAGE_TASK_TAKEOVER_MS), 0.5 s between two looks, and what a busy
machine adds."""
WOKEN_S = 2.0
"""A worker that wakes up has so long to say what it must not."""
STEPS, STEP_MS = 5, 500
TAKEN_S = 20.0
"""Until a task of a dead worker must have ended: silence after which it counts as dead, and all its steps again."""


class WorkerTakeover(Scenario):
    name = "worker-takeover"
    promise = (
        "SIGKILL of the worker in mid step, 3 x 6 tasks: another ends each, the step that runs again carries the same "
        "key, one task_result; a worker that was stopped and wakes up says no more"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"kill", "pause"})
    setup: ClassVar[Setup | None] = LOGS
    bound_s = 150.0
    mutants: ClassVar[tuple[str, ...]] = ("no-takeover", "zombie-worker")

    async def run(self, ctx: Context) -> None:
        logs = Logs(ctx)
        readers: list[Reader] = []
        for n in range(ROUNDS):
            ctx.progress(f"round {n + 1}")
            account = ctx.clients.account()
            made = await together(
                reader(ctx.clients, account, session) for session in
                await together(logs.session(account) for _ in range(TASKS))
            )  # fmt: skip
            readers += made
            task = {"steps": STEPS, "stepMs": STEP_MS}
            await together(logs.turn(account, one, task, "chaos-steps") for one in made)
            # The second step has begun and has most of its time before it.
            await together(one.until("step", 10.0, 3) for one in made)
            await asyncio.sleep(STEP_MS / 5000)
            victim = await self._busiest(ctx, logs)
            async with ctx.faults.hold(Kill(victim) if n < KILLS else Pause(victim)):
                await together(one.until("task_result", TAKEN_S) for one in made)
        await asyncio.sleep(WOKEN_S)
        await logs.finish(*readers)

    async def _busiest(self, ctx: Context, logs: Logs) -> Place:
        """The worker that has most tasks of this round's sessions."""
        now = frozenset(logs.sessions[-TASKS:])
        counts = []
        for worker in ctx.driver.workers:
            rows = [orjson.loads(line) for line in await ctx.driver.told(worker, PREFIX)]
            counts.append(len({row["session"] for row in rows if row["phase"] == "invoke"} & now))
        if not any(counts):
            raise DriverError("no worker has a task")
        return ctx.driver.workers[counts.index(max(counts))]

    def check(self, history: History) -> list[Promise]:
        return judge(
            history,
            (
                fault_happened(Kill.kind, KILLS, killed),
                fault_happened(Pause.kind, 1, lambda proof: proof.get("state") == "T"),
                interrupted_steps(ROUNDS),
                taken_over(SOON_S),
                one_result_each(ROUNDS * TASKS),
                only_latest_attempt(),
                each_once(ROUNDS * TASKS * STEPS * 2),
                log_order(),
                turns_ended(ROUNDS * TASKS),
            ),
        )
