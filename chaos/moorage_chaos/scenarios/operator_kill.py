"""The operator is killed by SIGKILL in the middle of each step of a switch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.base import held
from moorage_chaos.checkers.bite import fault_happened, killed
from moorage_chaos.checkers.figures import at_most
from moorage_chaos.checkers.islands import no_islands
from moorage_chaos.cluster import Own, until
from moorage_chaos.drivers.base import Can
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
            await self._killed_at(ctx, own, "WaitingForRedis", set())
            await own.ready()
            before = await self._keys(own)
            async with Recorder(own, ctx.history):
                for mode, steps in SWITCHES:
                    revision, seen = await own.revision(), await own.reasons()
                    await own.patch(redis={"mode": mode})
                    for step in steps:
                        await self._killed_at(ctx, own, step, seen if step not in steps[:1] else set())
                    body = await own.ready()
                    ctx.history.note(
                        "switched",
                        mode=mode,
                        revisions=await own.revision() - revision,
                        replicas=body["status"]["readyReplicas"],
                    )
            ctx.history.note("kept", secret=before == await self._keys(own))
        finally:
            await own.delete()
            await own.api.delete(own.path("PersistentVolumeClaim", f"data-{NAME}-redis-0"))

    @staticmethod
    async def _keys(own: Own) -> object:
        secret = await own.child("Secret", "-secret-key")
        return secret and secret["data"]

    @staticmethod
    async def _killed_at(ctx: Context, own: Own, step: str, seen: set[str]) -> None:
        """SIGKILL as soon as the step shows."""

        async def shows() -> bool:
            return step in (await own.reasons()) - (seen - {step})

        await until(f"step {step}", shows, STEP_S, 0.05)
        await ctx.faults.inject(KillOperator(step))
        ctx.progress(f"killed at {step}")

    def check(self, history: History) -> list[Promise]:
        kills = 1 + sum(len(steps) for _, steps in SWITCHES)

        def ends(history: History) -> Iterator[Promise]:
            found = [
                (n.value["mode"], n.value["revisions"], n.value["replicas"])
                for n in history.notes("switched")
            ]
            wanted = [("Disabled", 1, 1), ("Managed", 1, 2)]
            yield Promise(
                "each switch ends, with one roll", str(wanted), str(found), "", held(found == wanted)
            )

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
