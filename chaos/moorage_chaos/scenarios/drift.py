"""Children of the object are edited and deleted by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.figures import at_most
from moorage_chaos.cluster import OWNED, Own, until
from moorage_chaos.drivers.base import Can
from moorage_chaos.history import History
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

REPAIRED_S = 5.0
"""MATRIX, drift."""
LONGEST_S = 20.0
REST_S = 3.0
"""Nothing may be written in this time once all is repaired: who fights writes each second."""
LABEL = "app.kubernetes.io/name"
DELETED = (
    ("PodDisruptionBudget", ""),
    ("ConfigMap", "-redis"),
    ("Service", "-peers"),
    ("ServiceAccount", ""),
)


class Drift(Scenario):
    name = "drift"
    promise = "children edited or deleted by hand are repaired within 5 s, once, and then nobody writes"
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"cluster"})
    bound_s = 60.0

    async def run(self, ctx: Context) -> None:
        own = Own(ctx.driver)
        hand = _Hand(ctx, own)

        async def service() -> dict[str, Any]:
            return await own.child("Service") or {
                "spec": {"selector": {"drift": "x"}},
                "metadata": {"labels": {}},
            }

        async def selector() -> bool:
            return "drift" not in (await service())["spec"]["selector"]

        async def port() -> bool:
            ports = (await service())["spec"].get("ports") or [{}]
            return bool(ports[0].get("targetPort") == "http")

        async def label() -> bool:
            return bool((await service())["metadata"]["labels"].get(LABEL) == "moorage")

        async def replicas() -> bool:
            deployment = await own.child("Deployment")
            return deployment is not None and deployment["spec"]["replicas"] == ctx.driver.setup.replicas

        await hand.edit("a selector label added", "Service", {"spec": {"selector": {"drift": "x"}}}, selector)
        await hand.edit(
            "a port changed", "Service", {"spec": {"ports": [{"port": 3000, "targetPort": 1}]}}, port
        )
        await hand.edit("a label removed", "Service", {"metadata": {"labels": {LABEL: None}}}, label)
        await hand.edit("replicas changed", "Deployment", {"spec": {"replicas": 7}}, replicas)
        for kind, suffix in DELETED:
            await hand.delete(kind, suffix)
        await own.ready()
        ctx.history.note("rest", quiet=await _quiet(own))

    def check(self, history: History) -> list[Promise]:
        def slowest(history: History) -> float:
            return max((pair.ms or LONGEST_S * 1000) for pair in history.pairs("drift")) / 1000

        def unrepaired(history: History) -> float:
            return sum(pair.phase != "ok" for pair in history.pairs("drift"))

        return judge(
            history,
            (
                reached("changes by hand", 8, "changes", lambda h: len(h.pairs("drift"))),
                at_most("not repaired", 0, "changes", unrepaired),
                at_most("slowest repair", REPAIRED_S, "s", slowest),
                at_most(
                    "writes at rest", 0, "objects", lambda h: float(not h.notes("rest")[-1].value["quiet"])
                ),
            ),
        )


class _Hand:
    """Changes something and waits for its repair; each an operation ``drift``."""

    def __init__(self, ctx: Context, own: Own) -> None:
        self._history, self._own = ctx.history, own

    async def edit(
        self, what: str, kind: str, patch: dict[str, Any], good: Callable[[], Awaitable[bool]]
    ) -> None:
        path = self._own.path(kind, self._own.name)
        await self._watched(what, self._own.api.patch(path, patch, "strategic-merge"), good)

    async def delete(self, kind: str, suffix: str) -> None:
        path = self._own.path(kind, self._own.name + suffix)
        uid = (await self._own.api.get(path))["metadata"]["uid"]

        async def anew() -> bool:
            body = await self._own.child(kind, suffix)
            return body is not None and body["metadata"]["uid"] != uid

        await self._watched(f"{kind} {self._own.name}{suffix} deleted", self._own.api.delete(path), anew)

    async def _watched(self, what: str, change: Awaitable[Any], good: Callable[[], Awaitable[bool]]) -> None:
        operation = self._history.begin("drift", what=what)
        await change
        try:
            await until(what, good, LONGEST_S)
        except TimeoutError as error:
            operation.info(error=str(error))
            return
        operation.ok()


async def _quiet(own: Own) -> bool:
    """Within 20 s there are :data:`REST_S` in which no child and not the object itself is written."""

    async def versions() -> dict[str, str]:
        found = [*await own.children(*OWNED), {**await own.body(), "kind": "RealtimeServer"}]
        return {f"{o['kind']}/{o['metadata']['name']}": o["metadata"]["resourceVersion"] for o in found}

    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        before = await versions()
        await asyncio.sleep(REST_S)
        if await versions() == before:
            return True
    return False
