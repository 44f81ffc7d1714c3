"""Our link beside redis-py on one server, in one run: ``cd server && python -m tests.storage.bench_link``.

Prints one JSON object: round trips one after the other (p50, µs), and XADD by 100 at once (commands a second, and
µs of this process's CPU for each). Not a test: it judges nothing.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import redis.asyncio
import uvloop

from moorage.storage.backplane import Backplane

from ..valkey import Valkey

SEQUENTIAL = 3000
BATCH = 100
BATCHES = 300
FIELDS = {"uid": "u", "nsp": "/", "type": "3", "data": "x" * 200}


async def sequential(one: Callable[[], Awaitable[Any]]) -> int:
    times = []
    for _ in range(SEQUENTIAL):
        start = time.perf_counter()
        await one()
        times.append(time.perf_counter() - start)
    return round(statistics.median(times) * 1e6)


async def batches(many: Callable[[], Awaitable[Any]]) -> tuple[int, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(BATCHES):
        await many()
    count = BATCH * BATCHES
    return round(count / (time.perf_counter() - wall)), round((time.process_time() - cpu) / count * 1e6, 1)


async def measure(url: str) -> dict[str, Any]:
    backplane = Backplane(url, name="bench")
    await backplane.start()
    client = redis.asyncio.Redis.from_url(url)
    flat = [part for pair in FIELDS.items() for part in pair]

    def ours() -> asyncio.Future[Any]:
        return backplane.command("XADD", "s", "MAXLEN", "~", 10_000, "*", *flat)

    async def pipeline() -> None:
        pipe = client.pipeline(transaction=False)
        for _ in range(BATCH):
            pipe.xadd("s", FIELDS, maxlen=10_000)  # type: ignore[arg-type]
        await pipe.execute()

    async def together() -> None:
        await asyncio.gather(*[ours() for _ in range(BATCH)])

    await sequential(ours)  # warm
    result = {
        "ours p50 us": await sequential(ours),
        "redis-py p50 us": await sequential(lambda: client.xadd("s", FIELDS, maxlen=10_000)),  # type: ignore[arg-type]
        "ours cmd/s, us CPU": await batches(together),
        "redis-py pipeline cmd/s, us CPU": await batches(pipeline),
    }
    await backplane.stop()
    await client.aclose()
    return result


def main() -> None:
    server = Valkey()
    server.start()
    try:
        result = {"asyncio": asyncio.run(measure(server.url)), "uvloop": uvloop.run(measure(server.url))}
    finally:
        server.stop()
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
