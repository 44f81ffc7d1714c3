"""The operator is killed by SIGKILL in the middle of each step of a switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.base import held
from moorage_chaos.checkers.bite import fault_happened, killed
from moorage_chaos.checkers.figures import at_most
from moorage_chaos.checkers.islands import no_islands
from moorage_chaos.cluster import Own, on_cluster, until
from moorage_chaos.drivers.base import Can
from moorage_chaos.drivers.kubernetes_object import is_settled
from moorage_chaos.faults.operator import KillOperator
from moorage_chaos.history import History
from moorage_chaos.scenarios._pods import Recorder
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

NAME = "row-operator-kill"
SWITCHES = (
    ("Disabled", ("ScalingDown", "RollingOffRedis", "RemovingRedis")),
    ("Managed", ("RollingOntoRedis", "ScalingUp")),
)
STEP_S = 90.0
"""Until a step shows: an operator that comes after a SIGKILL waits 15 s for the lease of its predecessor."""
ROUNDS = 3
"""ScalingDown lasts a tenth of a second: a kill meant for it may hit the next step before that is told, and the
operator that comes finds it done. Then the switches are made again, and only what was not hit is killed."""


class OperatorKill(Scenario):
    name = "operator-kill"
    promise = "the operator SIGKILLed in the middle of each step: the next one finishes, no step is repeated harmfully"
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"cluster", "kill"})
    bound_s = 150.0

    async def run(self, ctx: Context) -> None:
        own = Own(ctx.driver, NAME)
        await own.create(replicas=2)
        try:
            await self._killed_at(ctx, own, "WaitingForRedis", Counter())
            await own.ready()
            before = await self._keys(own)
            missing = {step for _, steps in SWITCHES for step in steps}
            async with Recorder(own, ctx.history):
                for _ in range(ROUNDS):
                    for mode, steps in SWITCHES:
                        missing -= await self._switch(
                            ctx, own, mode, [step for step in steps if step in missing]
                        )
                    if not missing:
                        break
            ctx.history.note("kept", secret=before == await self._keys(own))
        finally:
            await own.delete()
            await own.api.delete(own.path("PersistentVolumeClaim", f"data-{NAME}-redis-0"))

    async def _switch(self, ctx: Context, own: Own, mode: str, steps: list[str]) -> set[str]:
        """Switch, and kill at each of ``steps`` that shows; those at which it was killed."""
        revision, before = await own.revision(), await own.reasons()
        await own.patch(redis={"mode": mode})
        killed = {step for step in steps if await self._killed_at(ctx, own, step, before)}
        body = await own.ready()
        ctx.history.note(
            "switched",
            mode=mode,
            revisions=await own.revision() - revision,
            replicas=body["status"]["readyReplicas"],
        )
        return killed

    @staticmethod
    async def _keys(own: Own) -> object:
        secret = await own.child("Secret", "-secret-key")
        return secret and secret["data"]

    @staticmethod
    async def _killed_at(ctx: Context, own: Own, step: str, before: Counter[str]) -> bool:
        """SIGKILL as soon as the step shows; False if the object has settled without it, or if the operator that told
        of it is dead already, from the kill before."""

        async def shows() -> str:
            if (await own.reasons())[step] > before[step]:
                return step
            return "settled" if is_settled(await own.body()) else ""

        if await until(f"step {step}", shows, STEP_S, 0.05) != step:
            return False
        if not await on_cluster(ctx.driver).admin.operator_runs():
            return False
        await ctx.faults.inject(KillOperator(step))
        ctx.progress(f"killed at {step}")
        return True

    def check(self, history: History) -> list[Promise]:
        kills = 1 + sum(len(steps) for _, steps in SWITCHES)

        def ends(history: History) -> Iterator[Promise]:
            found = [
                (n.value["mode"], n.value["revisions"], n.value["replicas"])
                for n in history.notes("switched")
            ]
            wanted = [("Disabled", 1, 1), ("Managed", 1, 2)]
            good = bool(found) and found == wanted * (len(found) // len(wanted))
            yield Promise("each switch ends, with one roll", str(wanted), str(found), "", held(good))

        return judge(
            history,
            (
                fault_happened(KillOperator.kind, kills, killed),
                ends,
                no_islands(),
                at_most(
                    "generated secrets made anew",
                    0,
                    "secrets",
                    lambda h: float(not h.notes("kept")[-1].value["secret"]),
                ),
            ),
        )
