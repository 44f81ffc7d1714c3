"""Entries of the stream and messages of the channels that no node should have written."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from typing import Any, ClassVar

import ormsgpack

from moorage_chaos.checkers import judge
from moorage_chaos.checkers.bite import crossing, reached
from moorage_chaos.checkers.broadcast import exactly_once, in_order
from moorage_chaos.checkers.ends import all_ok
from moorage_chaos.checkers.figures import at_least, at_most
from moorage_chaos.checkers.latency import duration
from moorage_chaos.drivers.base import Can, DriverError
from moorage_chaos.history import History
from moorage_chaos.load import every, play
from moorage_chaos.scenarios._common import replicas
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise

STREAM = "socket.io"
SECONDS = 6.0
WAVES = 30
"""Times that the whole lot is written, spread over the row."""
LOOK_S = 3.0
"""Of the look at the CPU, when all is over and nothing but beats goes on."""
IDLE_PERCENT = 15.0
"""Of a core and replica: beats of three replicas cost about 2 %; a poison entry that is read for ever costs 100 %."""
NO_NODE = "00000000000000ff"


def entries() -> list[dict[str, str | bytes]]:
    """Stream entries, each broken in another way (the traps of Node's reader among them); fields as XADD takes
    them."""

    def of(kind: str, data: str | bytes | None = None, **more: str | bytes) -> dict[str, str | bytes]:
        fields: dict[str, str | bytes] = {"uid": NO_NODE, "nsp": "/", "type": kind, **more}
        return fields if data is None else {**fields, "data": data}

    packet = {"type": 2, "data": ["e", 1]}
    opts: dict[str, Any] = {"rooms": [], "except": [], "flags": {}}
    broken: list[Any] = [
        {"packet": packet},
        {"packet": None, "opts": opts},
        {"opts": opts},
        {"packet": {"type": 2}, "opts": opts},
        {"packet": {"type": 2, "data": "e"}, "opts": opts},
        {"packet": {"type": 2, "data": []}, "opts": opts},
        {"packet": packet, "opts": {"rooms": "all", "except": 7, "flags": []}},
        {"packet": packet, "opts": {"rooms": [1, None], "except": [{}]}},
        {"packet": packet, "opts": None},
        [1, 2, 3],
        None,
    ]
    found = [of("3", json.dumps(data)) for data in broken]
    found += [of("3"), of("4"), of("5"), of("6"), of("4", json.dumps({"opts": opts})), of("6", "{}")]
    found += [of("4", json.dumps({"opts": opts, "rooms": 5})), of("99", "{}"), of("x", "{}"), of("-1", "{}")]
    found += [of("3", "{"), of("3", "!!!"), of("3", b"\xff\xfe\x00"), of("3", "")]
    found += [
        of("3", base64.b64encode(junk)) for junk in (b"\xc1", b"\x81", b"\xdf\xff\xff\xff\xff", b"\x93\x01")
    ]
    found += [of("3", json.dumps({"packet": packet, "opts": opts, "deep": "[" * 2000}))]
    found += [
        of("3", "[" * 100_000),
        {"uid": NO_NODE},
        {"some": "field"},
        {"nsp": "/", "type": "3", "data": "{}"},
    ]
    found += [of("3", "{}", nsp=""), of("3", "{}", nsp="/\x00"), of("3", "{}", uid=b"\xff" * 8)]
    return found


def messages(rng: random.Random) -> list[bytes]:
    """Channel messages, broken in other ways each time."""
    shapes: list[Any] = [
        None,
        7,
        "text",
        [],
        {},
        ["a"],
        ["a", "b"],
        [1, 2, 3],
        ["ghost", "boot", "beat"],
        ["ghost", "boot", "beat", "x", "y"],
        ["ghost", "boot", "tell", 1],
        ["ghost", "boot", "tell", "n", [["+"]]],
        ["ghost", "boot", "state", 1, [[1, 2, 3]]],
        ["ghost", "boot", "msg"],
        ["ghost", "boot", "msg", {"a": 1}],
        ["ghost", "boot", "ask", 1],
        ["ghost", "boot", "nonsense", 1, 2, 3],
        {"type": 7},
        {"type": 7, "uid": NO_NODE, "nsp": "/", "data": None},
        {"type": "seven", "uid": 1, "nsp": [], "data": {}},
        {"type": 9, "uid": NO_NODE, "nsp": "/", "data": {"packet": None, "requestId": {}}},
        {"type": 3, "uid": NO_NODE, "nsp": "/", "data": {"requestId": "r", "packet": {}, "opts": 1}},
    ]
    junk = [rng.randbytes(rng.randrange(0, 60)) for _ in range(8)]
    return [*(ormsgpack.packb(shape) for shape in shapes), *junk, b"\xdd\xff\xff\xff\xff", b""]


class PoisonEntry(Scenario):
    name = "poison-entry"
    promise = "malformed stream entries and channel messages are skipped and counted, delivery goes on, CPU idle after"
    safe = False
    needs: ClassVar[frozenset[Can]] = frozenset({"redis-kill"})
    """That is: a Redis of our own."""
    mutants: ClassVar[tuple[str, ...]] = ("poison-for-ever", "poison-stops", "poison-deafens")

    async def run(self, ctx: Context) -> None:
        places = replicas(ctx.driver)
        clients, account = ctx.clients, ctx.clients.account()
        daemon = await clients.daemon(account, "poison:echo", where=places[0])
        caller = await clients.caller(account, places[1])
        readers = [await clients.client(account, "reader").connect(place) for place in places]
        before = [await ctx.driver.metrics(place) for place in places]
        writing = clients.start(self._poison(ctx))

        async def call(n: int) -> None:
            await caller.call("poison:echo", target=daemon, timeout_ms=3000, group="call")

        async def emit(n: int) -> None:
            place, event = places[n % len(places)], ("update", "ephemeral")[n % 2]
            filter_ = {"type": "user-scoped-only"}
            everybody = [*readers, caller]
            if event == "update":
                await clients.emit(account, "update", filter_, expect=everybody, where=place, via=place.link)
            else:
                await clients.emit(
                    account, "ephemeral", filter_, expect=everybody, where=place, via=place.link
                )

        calls = clients.start(play(every(100, SECONDS * 1000), call))
        await play(every(50, SECONDS * 1000), emit)
        await calls
        written = await writing
        await asyncio.sleep(0.5)
        after = [await ctx.driver.metrics(place) for place in places]
        counted = [
            end.get(COUNTER, 0.0) - start.get(COUNTER, 0.0) for start, end in zip(before, after, strict=True)
        ]
        await asyncio.sleep(LOOK_S)
        late = [await ctx.driver.metrics(place) for place in places]
        try:
            used = [end[CPU] - start[CPU] for start, end in zip(after, late, strict=True)]
        except KeyError as error:
            raise DriverError(f"a replica does not tell {error}") from error
        ctx.history.note("poison", **written, counted=counted, cpuPercent=[100 * s / LOOK_S for s in used])

    async def _poison(self, ctx: Context) -> dict[str, int]:
        """Write everything in waves; how many entries and messages there were."""
        import redis.asyncio

        lots, rng = entries(), ctx.random
        told = entered = 0
        client = redis.asyncio.Redis.from_url(ctx.driver.redis.url, socket_timeout=5)
        try:
            channels = [
                *await client.pubsub_channels("moorage:*"),
                *await client.pubsub_channels(f"{STREAM}#*"),
            ]
            for _ in range(WAVES):
                async with client.pipeline(transaction=False) as pipe:
                    for fields in lots:
                        pipe.xadd(STREAM, fields)  # type: ignore[arg-type]
                    for message in messages(rng):
                        pipe.publish(rng.choice(channels), message)
                        told += 1
                    await pipe.execute()
                entered += len(lots)
                await asyncio.sleep(SECONDS * 0.9 / WAVES)
        finally:
            await client.aclose()
        return {"entries": entered, "messages": told, "channels": len(channels)}

    def check(self, history: History) -> list[Promise]:
        def note(history: History) -> dict[str, Any]:
            return history.notes("poison")[-1].value

        calls = int(SECONDS * 10)
        return judge(
            history,
            (
                reached("poison entries", WAVES * 30, "entries", lambda h: float(note(h)["entries"])),
                reached("poison messages", WAVES * 20, "messages", lambda h: float(note(h)["messages"])),
                crossing(calls // 2, group="call"),
                all_ok("calls", calls, group="call"),
                duration("call", 0.99, 100.0, group="call"),
                exactly_once(int(SECONDS * 20)),
                in_order(),
                # Entries for namespaces and of kinds that nobody knows are ignored, not malformed.
                at_least(
                    "poison counted by each replica",
                    WAVES * 20,
                    "entries",
                    lambda h: float(min(note(h)["counted"])),
                ),
                at_most(
                    "CPU of a replica after", IDLE_PERCENT, "%", lambda h: float(max(note(h)["cpuPercent"]))
                ),
            ),
        )


COUNTER = "cluster_malformed_total"
CPU = "process_cpu_seconds_total"
