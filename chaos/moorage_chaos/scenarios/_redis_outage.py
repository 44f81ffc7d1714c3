"""An outage of Redis under load, common to the rows that freeze or kill it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from itertools import permutations
from typing import Any

from moorage_chaos.accounts import Account
from moorage_chaos.clients import Clients
from moorage_chaos.faults.base import Fault
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._common import replicas, running, together
from moorage_chaos.scenarios.base import Context

OUTAGE_S = 20.0
BEFORE_S, AFTER_S = 2.0, 5.0
BACK_S = 2.0
"""All is back this long after Redis (MATRIX, redis-freeze and redis-restart)."""


class Outage:
    """Load that goes on before, during and after; each operation is tagged with the ``group`` it was begun
    in: ``before``, ``away``, ``returning`` (the first 2 s with Redis) or ``back``.
    """

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.places = replicas(ctx.driver)
        self.group = "before"
        self.over = asyncio.Event()
        self.events: Account = ctx.clients.account()

    async def play(self, fault: Fault) -> None:
        clients: Clients = self.ctx.clients
        account = clients.account()
        daemons = [
            await clients.daemon(account, f"outage:{i}", where=place) for i, place in enumerate(self.places)
        ]
        callers = [await clients.caller(account, place) for place in self.places]
        local = await clients.client(
            self.events, "local", clientType="machine-scoped", machineId="m"
        ).connect(self.places[0])
        ways = list(permutations(range(len(self.places)), 2))

        async def same(n: int) -> None:
            i = n % len(self.places)
            await callers[i].call(
                f"outage:{i}", target=daemons[i], timeout_ms=3000, group=self.group, way="same"
            )

        async def cross(n: int) -> None:
            i, j = ways[n % len(ways)]
            await callers[i].call(
                f"outage:{j}", target=daemons[j], timeout_ms=3000, group=self.group, way="cross"
            )

        async def emit(n: int) -> None:
            await clients.emit(
                self.events,
                "ephemeral",
                {"type": "machine-scoped-only", "machineId": "m"},
                expect=[local],
                where=self.places[0],
                group=self.group,
                what="local",
            )

        total_ms = 120_000
        stop = self.over.is_set
        loads = [
            clients.start(play(every(100, total_ms), same, until=stop)),
            clients.start(play(every(50, total_ms), cross, until=stop)),
            clients.start(play(every(500, total_ms), emit, until=stop)),
        ]
        loads += [clients.start(work) for work in self.more()]
        await asyncio.sleep(BEFORE_S)
        held = [
            clients.start(
                callers[0].call(
                    "outage:1", target=daemons[1], sleep_ms=s * 1000, timeout_ms=40_000, group=f"held-{s}"
                )
            )
            for s in (3, 22)
        ]
        await running(clients, 1, "held-3")
        await running(clients, 1, "held-22")
        # Before it is injected: on pods the proof of a kill takes seconds, in which operations already meet the outage.
        self.group = "away"
        async with self.ctx.faults.hold(fault):
            await asyncio.sleep(OUTAGE_S)
        self.ctx.history.note("redis-back")
        self.group = "returning"
        await asyncio.sleep(BACK_S)
        self.group = "back"
        await asyncio.sleep(AFTER_S)
        self.over.set()
        await together([*loads, *held])

    def more(self) -> list[Coroutine[Any, Any, None]]:
        """Further load of a row."""
        return []


def outage_s(history: History) -> float:
    """How long Redis was away."""
    back = [note.t for note in history.notes("redis-back")]
    gone = [int(p.result.get("tNs", p.t0)) for p in history.pairs("fault")]
    return (back[0] - gone[0]) / 1e9 if back and gone else 0.0
