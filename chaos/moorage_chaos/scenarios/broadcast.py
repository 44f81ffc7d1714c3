"""Every recipient filter, from every replica, to sockets on all of them."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Literal

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.broadcast import exactly_once, in_order
from moorage_chaos.client import Client
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

EVENTS: tuple[Literal["update", "ephemeral"], ...] = ("update", "ephemeral")
ROUNDS = 3
EMITS_EACH = 6
"""Filters by replica and event: four filters, and two that skip a sender."""
SETTLE_S = 0.3
"""After the last expected copy: time in which a copy too many would show."""


class Broadcast(Scenario):
    name = "broadcast"
    promise = "20 sockets over all replicas, every filter and skip_sender: each expected copy once, in order, no other"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("drop-event", "double-event", "swap-events", "leak-broadcast")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        clients = ctx.clients
        mine, other = clients.account(), clients.account()
        sessions = []
        for tag in ("a", "b"):
            status, body = await clients.request(
                "POST", "/v1/sessions", {"tag": tag, "metadata": "m"}, account=mine
            )
            if status != 200:
                raise DriverError(f"POST /v1/sessions answered {status} {body!r}")
            sessions.append(body["session"]["id"])
        plans: list[tuple[Any, dict[str, Any]]] = [(mine, {}) for _ in range(8)]
        plans += [(mine, {"clientType": "session-scoped", "sessionId": sessions[i % 2]}) for i in range(4)]
        plans += [(mine, {"clientType": "machine-scoped", "machineId": f"m{i % 2}"}) for i in range(4)]
        plans += [(other, {"clientType": "session-scoped", "sessionId": sessions[0]}) for _ in range(2)]
        plans += [(other, {}), (other, {"clientType": "machine-scoped", "machineId": "m0"})]
        sockets: list[Client] = []
        for i, (account, auth) in enumerate(plans):
            kind: Literal["raw", "plain"] = "plain" if i % 4 == 3 else "raw"
            sockets.append(
                await clients.client(account, "socket", kind=kind, **auth).connect(places[i % len(places)])
            )
        own = [s for s in sockets if s.account is mine]
        users = [s for s in own if "clientType" not in s.auth]
        session = [s for s in own if s.auth.get("sessionId") == sessions[0]]
        machine = [s for s in own if s.auth.get("machineId") == "m0"]
        every: dict[str, tuple[dict[str, Any], list[Client], Client | None]] = {
            "all": ({"type": "all-user-authenticated-connections"}, own, None),
            "users": ({"type": "user-scoped-only"}, users, None),
            "session": (
                {"type": "all-interested-in-session", "sessionId": sessions[0]},
                users + session,
                None,
            ),
            "machine": ({"type": "machine-scoped-only", "machineId": "m0"}, users + machine, None),
            "all-skip": ({"type": "all-user-authenticated-connections"}, own, users[0]),
            "session-skip": (
                {"type": "all-interested-in-session", "sessionId": sessions[0]},
                users + session,
                users[-1],
            ),
        }
        before = len(ctx.history.notes("received"))
        wanted = 0
        for _ in range(ROUNDS):
            for place in places:
                for event in EVENTS:
                    for filter_, expect, skip in every.values():
                        expected = [s for s in expect if s is not skip]
                        emit = await clients.emit(
                            mine, event, filter_, expect=expected, where=place, skip=skip, via=place.link
                        )
                        wanted += len(expected) if emit.good else 0
        try:
            await clients.until(
                lambda: len(ctx.history.notes("received")) - before >= wanted, 3.0, "all copies"
            )
        except TimeoutError:
            ctx.progress("copies are missing")
        await asyncio.sleep(SETTLE_S)

    def check(self, history: History) -> list[Promise]:
        def homes(history: History) -> float:
            return len(
                {
                    p.result.get("replica")
                    for p in history.pairs("connect")
                    if p.value["client"][:6] == "socket"
                }
            )

        expected = ROUNDS * len(EVENTS) * EMITS_EACH * 2
        return judge(
            history,
            (
                reached("replicas with sockets", 2, "replicas", homes),
                exactly_once(expected),
                in_order(),
            ),
        )
