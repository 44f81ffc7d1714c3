"""What the rows of these tests share: an echo of /ready as the only load."""

from __future__ import annotations

from moorage_chaos.drivers.probe import get
from moorage_chaos.history import History
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise


class Asking(Scenario):
    """Asks the front once per replica."""

    async def run(self, ctx: Context) -> None:
        for _ in ctx.driver.replicas:
            operation = ctx.history.begin("emit")
            status, _ = await get(ctx.driver.url + "/ready", timeout_s=5)
            operation.ok(status=status)

    def check(self, history: History) -> list[Promise]:
        statuses = {pair.result.get("status") for pair in history.pairs("emit")}
        return [
            Promise(
                "answers",
                "200",
                max(statuses, default=None),
                "status",
                "passed" if statuses == {200} else "failed",
            )
        ]
