"""A client that never reads while 100 MB of events are sent to it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import reached
from moorage_chaos.checkers.broadcast import exactly_once
from moorage_chaos.checkers.bystander import not_slower
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.checkers.figures import at_most
from moorage_chaos.drivers.base import DriverError, Replica
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._common import replicas
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

METHOD = "other:echo"
EMITS = 500
PAD_BYTES = 200_000
"""500 x 200 kB = 100 MB (MATRIX, slow-consumer), in messages under MAX_PAYLOAD_BYTES."""

AT_ONCE = 2
"""Emits under way: enough to keep three replicas busy, few enough that the others are measured, not the
CPU.
"""

GROWTH_MB = 64.0
"""Bar of the growth of any replica: the buffer of one slow client (16 MiB) and what the allocator keeps of
the messages in between. Unbounded, 100 MB would be held.
"""


class SlowConsumer(Scenario):
    name = "slow-consumer"
    promise = "a client that never reads under 100 MB of events: memory stays bounded, nobody else notices"
    safe = True
    mutants: ClassVar[tuple[str, ...]] = ("unbounded-buffer",)

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        clients, flood, other = ctx.clients, ctx.clients.account(), ctx.clients.account()
        slow = await clients.client(flood, "slow").connect(places[0])
        readers = [await clients.client(flood, "reader").connect(place) for place in places[:2]]
        daemon = await clients.daemon(other, METHOD, where=places[0])
        caller = await clients.caller(other, places[1])
        await _memory(ctx, "before")
        slow.wire.freeze()

        async def call(group: str) -> None:
            await caller.call(METHOD, target=daemon, timeout_ms=5000, group=group)

        await play(every(20, 2000), lambda n: call("before"))
        over = asyncio.Event()
        load = clients.start(play(every(20, 50_000), lambda n: call("during"), until=over.is_set))
        watch = clients.start(_watch(ctx, over))
        gate = asyncio.Semaphore(AT_ONCE)
        place = places[-1]

        async def emit() -> None:
            async with gate:
                await clients.emit(
                    flood, "ephemeral", {"type": "user-scoped-only"}, expect=readers, pad=PAD_BYTES, where=place,
                    also=slow.name,
                )  # fmt: skip

        async with asyncio.TaskGroup() as group:
            for _ in range(EMITS):
                group.create_task(emit())
        await clients.until(
            lambda: all(len(reader.received) >= EMITS for reader in readers),
            10,
            "all events with the readers",
        )
        over.set()
        await load
        await watch
        await _memory(ctx, "after")

    def check(self, history: History) -> list[Promise]:
        def sent_mb(history: History) -> float:
            return sum(p.phase == "ok" for p in history.pairs("emit")) * PAD_BYTES / 1e6

        def growth(history: History) -> float:
            notes = [note.value for note in history.notes("memory")]
            before = {n["link"]: n["mb"] for n in notes if n["when"] == "before"}
            return float(max(n["mb"] - before[n["link"]] for n in notes))

        return judge(
            history,
            (
                reached("sent to the client that does not read", 100, "MB", sent_mb),
                at_most("growth of the largest replica", GROWTH_MB, "MB", growth),
                all_ok("calls of others", 100, group=("before", "during")),
                not_slower(2, 100, {"group": "before"}, {"group": "during"}),
                exactly_once(EMITS),
            ),
        )


async def _memory(ctx: Context, when: str) -> None:
    for replica in ctx.driver.replicas:
        ctx.history.note("memory", when=when, link=replica.link, mb=await _resident(ctx, replica) / 1e6)


async def _resident(ctx: Context, replica: Replica) -> float:
    """Resident memory in bytes: of the process where it can be seen, else as its /metrics says.

    Raises DriverError if neither tells.
    """
    if ctx.driver.kind == "local" and replica.pid:
        return _resident_here(replica.pid)
    figure = (await ctx.driver.metrics(replica)).get("process_resident_memory_bytes")
    if figure is None:
        raise DriverError(f"the memory of {replica.link} cannot be seen")
    return figure


def _resident_here(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * float(os.sysconf("SC_PAGE_SIZE"))


async def _watch(ctx: Context, over: asyncio.Event) -> None:
    while not over.is_set():
        await _memory(ctx, "during")
        await asyncio.sleep(0.5)
