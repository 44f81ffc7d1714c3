"""From one object to a running server, and back to nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.base import held
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.figures import at_most
from moorage_chaos.cluster import OWNED, Own, until
from moorage_chaos.drivers.base import Can
from moorage_chaos.history import History
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

NAME = "row-apply"
CHILDREN = 14
"""With NetworkPolicies and an HPA: what docs/operator/reference.md lists for such an object."""
GONE_S = 60.0
LEFT_KINDS = (*OWNED, "ReplicaSet", "Pod", "PersistentVolumeClaim")


class Apply(Scenario):
    name = "apply"
    promise = (
        "one object becomes a running server, every child owned by it; delete leaves nothing but the claim"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"cluster"})
    bound_s = 90.0

    async def run(self, ctx: Context) -> None:
        own = Own(ctx.driver, NAME)
        began = time.monotonic()
        await own.create(networkPolicy={"enabled": True}, autoscaling={"maxReplicas": 5})
        try:
            body = await own.ready()
            status, uid = body["status"], body["metadata"]["uid"]
            ctx.history.note(
                "ready",
                seconds=round(time.monotonic() - began, 2),
                generation=body["metadata"]["generation"],
                observed=status["observedGeneration"],
                mode=status["mode"],
                replicas=status["readyReplicas"],
            )
            for child in await own.children(*OWNED):
                owners = [owner["uid"] for owner in child["metadata"].get("ownerReferences") or []]
                ctx.history.note(
                    "child", kind=child["kind"], name=child["metadata"]["name"], owned=owners == [uid]
                )
        finally:
            await own.delete()

        async def gone() -> bool:
            return not await own.children(*OWNED, "ReplicaSet", "Pod")

        await until("the children are gone", gone, GONE_S)
        for left in await own.children(*LEFT_KINDS):
            ctx.history.note("left", kind=left["kind"], name=left["metadata"]["name"])
        await own.api.delete(own.path("PersistentVolumeClaim", f"data-{NAME}-redis-0"))

    def check(self, history: History) -> list[Promise]:
        def ready(history: History) -> Iterator[Promise]:
            (note,) = history.notes("ready")
            value = note.value
            good = value["generation"] == value["observed"] and value["mode"] == "Clustered"
            yield Promise(
                "Ready, for the generation that was applied",
                "observedGeneration = generation, Clustered",
                f"{value['observed']} of {value['generation']}, {value['mode']}, after {value['seconds']} s",
                "",
                held(good),
            )

        def left(history: History) -> Iterator[Promise]:
            found = sorted(f"{n.value['kind']} {n.value['name']}" for n in history.notes("left"))
            kept = [f"PersistentVolumeClaim data-{NAME}-redis-0"]
            yield Promise(
                "left after delete", ", ".join(kept), ", ".join(found) or "nothing", "", held(found == kept)
            )

        return judge(
            history,
            (
                reached("children", CHILDREN, "objects", lambda h: len(h.notes("child"))),
                ready,
                at_most(
                    "children without their owner", 0, "objects", lambda h: len(h.notes("child", owned=False))
                ),
                left,
            ),
        )
