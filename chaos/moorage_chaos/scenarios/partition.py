"""A replica is cut off: from Redis, from its clients, from both, and one way only.

Where the harness is root, replicas live in network namespaces and packets are dropped by the kernel; else the front's
proxies swallow what is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

from moorage_chaos.checkers import Checker, judge
from moorage_chaos.checkers.base import select
from moorage_chaos.checkers.bite import crossing, fault_happened, reached
from moorage_chaos.checkers.cutoff import agreed_within
from moorage_chaos.checkers.ends import all_ok, typed_ends
from moorage_chaos.checkers.latency import Losses, after_loss
from moorage_chaos.clients import Clients
from moorage_chaos.drivers.base import Can, DriverError, Replica, Setup
from moorage_chaos.faults.base import Fault
from moorage_chaos.faults.link import Blackhole
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._common import replicas, running, together
from moorage_chaos.scenarios.base import Context, Lane, Scenario
from moorage_chaos.verdict import Promise

CALLERS, EACH = 2, 10
CUT_S, AGREE_S, SETTLE_S = 4.0, 2.0, 0.5
TOLD_MS = 1500.0
LOCAL_EVERY_MS = 50
OWN_TIMEOUT_MS = 1200
"""Of calls to a daemon whose own connection is cut: nothing but its silence tells, so they set the time themselves."""

Cuts = Callable[[str], list[Fault]]
KINDS: dict[str, Cuts] = {
    "redis": lambda link: [Blackhole(f"{link}:redis")],
    "clients": lambda link: [Blackhole(link)],
    "both": lambda link: [Blackhole(f"{link}:redis"), Blackhole(link)],
    "unheard": lambda link: [Blackhole(f"{link}:redis", "up")],
    "unhearing": lambda link: [Blackhole(f"{link}:redis", "down")],
}
"""The last two are one-way: what the replica sends to Redis is lost, or what Redis sends to it."""

LOCAL = ("redis", "unheard", "unhearing")
"""Kinds in which the replica's clients still reach it."""


class _Phase:
    """One kind of cut, with clients of its own."""

    def __init__(self, ctx: Context, kind: str) -> None:
        self.ctx, self.kind = ctx, kind
        self.cut, self.near, *more = replicas(ctx.driver)
        self.far: Replica = more[0] if more else self.near
        self.over = False

    async def play(self) -> None:
        clients, kind = self.ctx.clients, self.kind
        account = clients.account()
        there, here = f"{kind}:there", f"{kind}:here"
        daemon = await clients.daemon(account, there, where=self.cut)
        other = await clients.daemon(account, here, where=self.near)
        beside = await clients.caller(account, self.cut)
        callers = await together(
            clients.caller(account, (self.near, self.far)[i % 2]) for i in range(CALLERS)
        )

        async def local(n: int) -> None:
            await beside.call(there, target=daemon, timeout_ms=3000, group=f"{kind}-local")

        async def others(n: int) -> None:
            await callers[1].call(here, target=other, timeout_ms=3000, group=f"{kind}-others")

        loads = [clients.start(play(every(100, 60_000), others, until=lambda: self.over))]
        if kind in LOCAL:
            loads.append(clients.start(play(every(LOCAL_EVERY_MS, 60_000), local, until=lambda: self.over)))
        timeout = OWN_TIMEOUT_MS if kind == "clients" else 25_000
        flights = [
            clients.start(
                c.call(there, target=daemon, sleep_ms=30_000, timeout_ms=timeout, group=f"{kind}-flight")
            )
            for c in callers
            for _ in range(EACH)
        ]
        await running(clients, CALLERS * EACH, f"{kind}-flight")
        faults = KINDS[kind](self.cut.link)
        told = await together(self.ctx.faults.inject(fault) for fault in faults)
        self.ctx.history.note("cut-off", t=min(e.t_ns for e in told), kind=kind, daemon=daemon.name)
        end = asyncio.get_running_loop().time() + CUT_S
        await asyncio.sleep(SETTLE_S)
        await together(
            c.call(there, target=daemon, timeout_ms=1000, group=f"{kind}-meanwhile") for c in callers
        )
        # What the replica misses now it must learn when it is back.
        new = await clients.daemon(account, f"{kind}:new", where=self.near)
        await asyncio.sleep(max(0.0, end - asyncio.get_running_loop().time()))
        await together(self.ctx.faults.undo(fault) for fault in faults)
        await self._agree(clients)
        if kind in LOCAL:
            back = [(c, there, daemon) for c in callers]
            back += [(beside, here, other), (beside, f"{kind}:new", new)]
            await together(
                c.call(method, target=target, timeout_ms=2000, group=f"{kind}-back")
                for c, method, target in back
            )
        self.over = True
        await together([*loads, *flights])
        await together(client.close() for client in (daemon, other, new, beside, *callers))

    async def _agree(self, clients: Clients) -> None:
        """Note when all replicas know as many registrations and members, at first sight."""
        driver, loop = self.ctx.driver, asyncio.get_running_loop()
        healed = loop.time()
        while loop.time() - healed < 3 * AGREE_S:
            try:
                told = [await driver.metrics(place) for place in driver.replicas]
            except DriverError:
                told = []
            counts = [[m.get("rpc_registrations"), m.get("cluster_members")] for m in told]
            if counts and all(count == counts[0] for count in counts) and counts[0][1] == len(counts):
                self.ctx.history.note("agreed", kind=self.kind, counts=counts)
                break
            await asyncio.sleep(0.05)
        await asyncio.sleep(max(0.0, healed + AGREE_S - loop.time()))


def _cut_off(kind: str) -> Losses:
    def find(history: History) -> list[tuple[int, str]]:
        return [(note.t, str(note.value["daemon"])) for note in history.notes("cut-off", kind=kind)]

    return find


class Partition(Scenario):
    name = "partition"
    promise = (
        "a replica cut from Redis, clients, both, one way: calls to it end typed <= 1.5 s, local calls go on, "
        "registries agree <= 2 s after"
    )
    safe = False
    lane: ClassVar[Lane] = "calm"
    needs: ClassVar[frozenset[Can]] = frozenset({"client-links", "redis-links"})
    setup = Setup(namespaces=True)
    bound_s = 100.0
    mutants: ClassVar[tuple[str, ...]] = (
        "no-hang-evidence",
        "local-waits-for-redis",
        "silent-return",
    )

    async def run(self, ctx: Context) -> None:
        for kind in KINDS:
            ctx.progress(kind)
            await _Phase(ctx, kind).play()

    def check(self, history: History) -> list[Promise]:
        checks: list[Checker] = [fault_happened(Blackhole.kind, len(KINDS) + 1)]
        for kind in KINDS:
            checks += _of_kind(kind)
        return judge(history, checks)


def _of_kind(kind: str) -> list[Checker]:
    total = CALLERS * EACH

    def stopped(history: History) -> float:
        return sum(pair.phase != "ok" for pair in select(history, group=f"{kind}-meanwhile"))

    named: dict[str, Any] = {"group": f"{kind}-flight"}
    checks: list[Checker] = [
        crossing(total, **named),
        reached(f"{kind}: calls that did not get through", 1, "calls", stopped),
        typed_ends(group=(f"{kind}-flight", f"{kind}-meanwhile")),
        after_loss(
            f"{kind}: from the cut to the answer", {1.0: TOLD_MS}, _cut_off(kind), at_least=total, **named
        ),
        all_ok(f"{kind}: calls between the others", 40, group=f"{kind}-others"),
        agreed_within(kind, AGREE_S * 1000),
    ]
    if kind in LOCAL:
        checks.append(all_ok(f"{kind}: calls inside the replica", 80, group=f"{kind}-local"))
        checks.append(all_ok(f"{kind}: calls {AGREE_S:g} s after", CALLERS + 2, group=f"{kind}-back"))
    return checks
