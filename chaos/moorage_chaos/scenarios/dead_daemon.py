"""The daemon itself goes in mid call: cleanly, or with its connection broken off."""

from __future__ import annotations

from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing, reached
from moorage_chaos.checkers.ends import ended_with
from moorage_chaos.checkers.latency import after_loss, downs
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, running, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

ROUNDS = 20
IN_FLIGHT = 5


class DeadDaemon(Scenario):
    name = "dead-daemon"
    promise = (
        "daemon closes cleanly in mid call: typed end <= 20 ms; daemon killed: p50 <= 30 ms, p99 <= 150 ms"
    )
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("no-fast-fail", "delivered-lie")

    async def run(self, ctx: Context) -> None:
        clients = ctx.clients
        account = clients.account()
        places = replicas(ctx.driver)
        callers = await together(clients.caller(account, places[i % len(places)]) for i in range(IN_FLIGHT))
        for way in ("close", "cut"):
            for i in range(ROUNDS):
                method, group = f"dead:{way}-{i}", f"{way}-{i}"
                daemon = await clients.daemon(account, method, where=places[i % len(places)])
                calls = [
                    clients.start(
                        c.call(
                            method, target=daemon, sleep_ms=10_000, timeout_ms=15_000, group=group, way=way
                        )
                    )
                    for c in callers
                ]
                await running(clients, IN_FLIGHT, group)
                if way == "close":
                    await daemon.close()
                else:
                    daemon.cut()
                await together(calls)

    def check(self, history: History) -> list[Promise]:
        total = ROUNDS * IN_FLIGHT

        def lost(history: History) -> float:
            return sum(note.value["cause"] in ("close", "cut") for note in history.notes("down"))

        return judge(
            history,
            (
                reached("daemons lost in mid call", 2 * ROUNDS, "daemons", lost),
                crossing(total, way=("close", "cut")),
                ended_with("ends", "target_disconnected", 2 * total, way=("close", "cut")),
                after_loss("after a clean close", {1.0: 20.0}, downs("close"), at_least=total, way="close"),
                after_loss(
                    "after a hard kill", {0.5: 30.0, 0.99: 150.0}, downs("cut"), at_least=total, way="cut"
                ),
            ),
        )
