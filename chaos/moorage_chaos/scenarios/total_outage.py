"""All replicas are killed at once, then come back."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from moorage_chaos import ours
from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import fault_happened, killed
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.checkers.figures import at_least
from moorage_chaos.checkers.recovery import back_within, notes
from moorage_chaos.drivers.base import Can
from moorage_chaos.faults.process import Kill
from moorage_chaos.history import History
from moorage_chaos.scenarios._common import replicas, together
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

OURS, PLAIN = 10, 5
PLAIN_DELAY_S = {"local": 7.5, "kubernetes": 37.5}
"""python-socketio's longest pause: reconnection_delay_max 5 s, randomised by half of it. A Service sends connections
to addresses that are gone until the endpoints are told; there a plain client hangs as long as aiohttp's default bound
of a connection, 30 s."""


class TotalOutage(Scenario):
    name = "total-outage"
    promise = (
        "all replicas killed, then back: our clients and registrations back <= 3 s after ready, by themselves"
    )
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"kill"})
    mutants: ClassVar[tuple[str, ...]] = ("lose-registration", "hang-call")

    async def run(self, ctx: Context) -> None:
        clients, account = ctx.clients, ctx.clients.account()
        daemons = await together(ours.daemon(clients, account, f"outage:{i}") for i in range(OURS))
        plain = await together(
            clients.daemon(account, f"outage:plain-{i}", kind="plain") for i in range(PLAIN)
        )
        callers = await together(ours.caller(clients, account) for _ in range(3))
        kills = [Kill(place) for place in replicas(ctx.driver)]
        await together(ctx.faults.inject(kill) for kill in kills)
        await asyncio.sleep(1.0)
        await together(ctx.faults.undo(kill) for kill in kills)
        ctx.history.note("ready-again", kind=ctx.driver.kind)
        longest = PLAIN_DELAY_S[ctx.driver.kind]
        await asyncio.sleep(3.0)
        await together(
            callers[i % 3].invoke(f"outage:{i}", target=daemon, timeout_ms=2000, group="ours")
            for i, daemon in enumerate(daemons)
        )
        try:
            back = "plain daemons registered"
            await clients.until(lambda: all(daemon.registered for daemon in plain), longest - 3.0 + 0.5, back)
        except TimeoutError:
            pass  # who is not back is counted below
        ctx.history.note("plain", registered=sum(bool(daemon.registered) for daemon in plain))
        await together(
            callers[i % 3].invoke(f"outage:plain-{i}", target=daemon, timeout_ms=2000, group="plain")
            for i, daemon in enumerate(plain)
        )

    def check(self, history: History) -> list[Promise]:
        ready = notes("ready-again")
        kinds = [note.value["kind"] for note in history.notes("ready-again")]
        longest = PLAIN_DELAY_S[kinds[0] if kinds else "local"] + 0.5

        def plain_back(history: History) -> float:
            return float(history.notes("plain")[-1].value["registered"])

        return judge(
            history,
            (
                fault_happened(Kill.kind, 2, killed),
                back_within("our daemons registered", "our-daemon", OURS, {3.0: OURS}, ready),
                at_least(f"plain daemons registered after {longest:g} s", PLAIN, "clients", plain_back),
                all_ok("calls to our daemons", OURS, group="ours"),
                all_ok("calls to plain daemons", PLAIN, group="plain"),
            ),
        )
