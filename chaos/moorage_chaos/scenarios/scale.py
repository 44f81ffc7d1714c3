"""The object is scaled, by hand and as an HPA does; those with the fewest clients go first, and drain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.base import held
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.figures import at_most
from moorage_chaos.cluster import Own, until
from moorage_chaos.drivers.base import Can
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

UP, DOWN = 5, 3
CLIENTS = 6
"""On each pod that must stay."""
PEERS_S = 60.0


class Scale(Scenario):
    name = "scale"
    promise = "scaling follows, by kubectl or by an HPA's writes; scaling down takes the emptiest pods and drains them"
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"cluster"})
    bound_s = 60.0

    async def run(self, ctx: Context) -> None:
        own, clients = Own(ctx.driver), ctx.clients
        places = replicas(ctx.driver, DOWN)[:DOWN]
        account = clients.account()
        await together(clients.caller(account, place) for place in places for _ in range(CLIENTS))
        stay = sorted(place.pod.name for place in places)  # type: ignore[attr-defined]
        await self._scale(own, UP, "autoscaler")
        await self._told(ctx, own, UP)
        everyone = sorted(pod["metadata"]["name"] for pod in await own.pods())
        await self._scale(own, DOWN, "kubectl")

        async def draining() -> list[Any]:
            return list((await own.body())["status"].get("draining") or [])

        told = await until("pods that drain are told", draining, PEERS_S)
        ctx.history.note("draining", pods=[entry["pod"] for entry in told])
        await self._told(ctx, own, DOWN)
        left = sorted(pod["metadata"]["name"] for pod in await own.pods())
        ctx.history.note("scaled-down", stay=stay, everyone=everyone, left=left)

        async def ended() -> bool:
            deaths = {note.value["pod"] for note in ctx.history.notes("death")}
            return set(everyone) - set(left) <= deaths

        await until("the pods that went have ended", ended, PEERS_S)

    @staticmethod
    async def _scale(own: Own, count: int, who: str) -> None:
        """Writes the scale subresource: a merge patch as ``kubectl scale``, or the whole of it as an HPA."""
        path = f"{own.own_path}/scale"
        if who == "kubectl":
            await own.api.patch(path, {"spec": {"replicas": count}})
            return
        scale = await own.api.get(path)
        scale["spec"]["replicas"] = count
        await own.api.request("PUT", path, body=scale)

    @staticmethod
    async def _told(ctx: Context, own: Own, count: int) -> None:
        body = await own.ready()
        scale = await own.api.get(f"{own.own_path}/scale")
        ctx.history.note(
            "scaled",
            wanted=count,
            replicas=body["status"]["replicas"],
            scale=scale["status"]["replicas"],
            selector=bool(scale["status"].get("selector")),
        )

    def check(self, history: History) -> list[Promise]:
        def followed(history: History) -> Iterator[Promise]:
            notes = [note.value for note in history.notes("scaled")]
            good = [n for n in notes if n["wanted"] == n["replicas"] == n["scale"] and n["selector"]]
            yield Promise(
                "scalings followed",
                "2/2",
                f"{len(good)}/{len(notes)}",
                "",
                held(len(good) == 2, len(notes) == 2),
            )

        def emptiest(history: History) -> Iterator[Promise]:
            value = history.notes("scaled-down")[-1].value
            yield Promise(
                "pods that stay",
                str(value["stay"]),
                str(value["left"]),
                "",
                held(value["stay"] == value["left"]),
            )

        def not_drained(history: History) -> float:
            value = history.notes("scaled-down")[-1].value
            gone = set(value["everyone"]) - set(value["left"])
            return float(sum(n.value["code"] != 0 for n in history.notes("death") if n.value["pod"] in gone))

        return judge(
            history,
            (
                reached("pods that were taken away", UP - DOWN, "pods", _taken),
                followed,
                emptiest,
                at_most("pods that ended in another way than drained (exit code 0)", 0, "pods", not_drained),
            ),
        )


def _taken(history: History) -> float:
    value = history.notes("scaled-down")[-1].value
    return len(value["everyone"]) - len(value["left"])
