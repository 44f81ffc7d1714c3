"""Many idle clients in one process: ``python -m moorage_chaos.idle``.

First line on stdin: ``{"url", "tokens": […], "count"}``. When all are connected it prints ``{"up": n}``. They
stay, and come back by themselves as moorage.client does: after 0-250 ms, doubling to 2 s. Any second line on
stdin makes it print ``{"connects": [[client, t0, t1, replica], …], "downs": [[client, t, replica, cause], …],
"up": n}`` (monotonic ns) and end.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

import orjson
import uvloop

from moorage_chaos import raw

AT_ONCE = 40
"""First connections under way at once: the row measures reconnects, not this."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 2.0
"""PROTOCOL, Clients: daemons and callers."""

START_S = 60.0


class Crowd:
    def __init__(self, url: str, tokens: list[str], count: int) -> None:
        self.url = url
        self.tokens = tokens
        self.count = count
        self.up: set[int] = set()
        self.connects: list[tuple[str, int, int, str]] = []
        self.downs: list[tuple[str, int, str, str]] = []
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def live(self, i: int) -> None:
        """One client for ever."""
        name = f"idle-{i}"
        pause, first = FIRST_PAUSE_S, True
        while True:
            down: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            begun = time.monotonic_ns()
            try:
                if first:
                    async with self._gate:
                        begun = time.monotonic_ns()
                        socket = await self._connect(i, down)
                else:
                    socket = await self._connect(i, down)
            except (OSError, TimeoutError):
                await asyncio.sleep(random.uniform(0, pause))
                pause = min(pause * 2, LONGEST_PAUSE_S)
                continue
            pause, first = FIRST_PAUSE_S, False
            replica = str(socket.hello.get("replica", ""))
            self.connects.append((name, begun, time.monotonic_ns(), replica))
            self.up.add(i)
            cause = await down
            self.up.discard(i)
            self.downs.append((name, time.monotonic_ns(), replica, cause))
            await asyncio.sleep(random.uniform(0, pause))

    async def _connect(self, i: int, down: asyncio.Future[str]) -> raw.RawSocket:
        auth = {"token": self.tokens[i % len(self.tokens)], "client": "chaos-idle"}
        return await raw.connect(
            self.url, auth, on_close=lambda cause: None if down.done() else down.set_result(cause), timeout=10
        )


async def serve() -> None:
    loop = asyncio.get_running_loop()
    stdin = asyncio.StreamReader(limit=2**20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    config = orjson.loads(await stdin.readline())
    crowd = Crowd(config["url"], config["tokens"], config["count"])
    tasks = [loop.create_task(crowd.live(i)) for i in range(crowd.count)]
    deadline = loop.time() + START_S
    while len(crowd.up) < crowd.count and loop.time() < deadline:  # noqa: ASYNC110 - a thousand events are one count
        await asyncio.sleep(0.05)
    _say({"up": len(crowd.up)})
    await stdin.readline()
    _say({"connects": crowd.connects, "downs": crowd.downs, "up": len(crowd.up)})
    for task in tasks:
        task.cancel()


def _say(row: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(row) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(serve())
