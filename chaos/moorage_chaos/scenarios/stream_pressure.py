"""Calls while the adapter's stream carries thousands of entries a second."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing, reached
from moorage_chaos.checkers.broadcast import exactly_once, in_order
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.checkers.figures import at_most
from moorage_chaos.checkers.latency import duration
from moorage_chaos.children import child
from moorage_chaos.drivers.base import Setup
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._common import replicas
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

METHOD = "pressure:echo"
RATE = 5000
SECONDS = 30
MAXLEN = 20_000
"""Four seconds of the load, so that the bound is met within the row (the default of 200,000 would not be)."""

EMIT_MS = 200
"""A replica trims when it appends; each of these appends."""


class StreamPressure(Scenario):
    name = "stream-pressure"
    promise = "5000 stream entries a second for 30 s, one in ten with recipients: no call fails, p99 <= 100 ms, bounded"
    safe = True
    setup = Setup(env={"MOORAGE_STREAM_MAXLEN": str(MAXLEN)})
    mutants: ClassVar[tuple[str, ...]] = ("unbounded-stream", "slow-stream")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        clients, account = ctx.clients, ctx.clients.account()
        daemon = await clients.daemon(account, METHOD, where=places[0])
        callers = [await clients.caller(account, places[(i + 1) % len(places)]) for i in range(3)]
        users = [await clients.client(account, "reader").connect(place) for place in places]
        for user in [*users, *callers, daemon]:
            user.quiet.add("pressure")
        room = f"user:{account.public_key}:user-scoped"
        argv = (ctx.driver.redis.url, "socket.io", str(RATE), str(SECONDS), room)
        async with child("moorage_chaos.pressure", *argv) as process:
            assert process.stdout is not None
            line = clients.start(process.stdout.readline())
            await asyncio.sleep(0.5)
            long_ms = (SECONDS + 20) * 1000.0

            async def load(i: int) -> None:
                async def call(n: int) -> None:
                    await callers[i].call(METHOD, target=daemon, group="call", timeout_ms=5000)

                await play(every(300, long_ms, first_ms=i * 100), call, until=line.done)

            async def emit(n: int) -> None:
                place = places[n % len(places)]
                filter_ = {"type": "user-scoped-only"}
                everybody = [*users, *callers]
                await clients.emit(account, "update", filter_, expect=everybody, where=place, via=place.link)

            async with asyncio.TaskGroup() as group:
                for i in range(3):
                    group.create_task(load(i))
                group.create_task(play(every(EMIT_MS, long_ms), emit, until=line.done))
            figures: dict[str, Any] = json.loads(await line)
        await asyncio.sleep(0.5)
        ctx.history.note("pressure", **figures, delivered=[user.counts.get("pressure", 0) for user in users])

    def check(self, history: History) -> list[Promise]:
        def rate(history: History) -> float:
            note = history.notes("pressure")[-1].value
            return float(note["appended"] / note["seconds"])

        def longest(history: History) -> float:
            return float(history.notes("pressure")[-1].value["longest"])

        def lost(history: History) -> float:
            note = history.notes("pressure")[-1].value
            return float(max(abs(note["addressed"] - count) for count in note["delivered"]))

        calls = int(3 * (SECONDS - 1) / 0.3) - 3
        return judge(
            history,
            (
                reached("entries a second", RATE * 0.9, "entries/s", rate),
                crossing(calls // 2, group="call"),
                all_ok("calls", calls, group="call"),
                duration("call", 0.99, 100.0, group="call"),
                # Between two trims of a replica the peer appends one period's worth, and MAXLEN ~ keeps whole
                # nodes.
                at_most("length of the stream", MAXLEN + RATE, "entries", longest),
                at_most("entries lost or doubled for a reader", 0, "entries", lost),
                exactly_once(100),
                in_order(),
            ),
        )
