"""Many readers of event logs in a process of their own, so that a thousand that come back at once do not hold up the
harness. ``python -m moorage_chaos.log_crowd``: JSON lines.

First line in: ``{"mutant", "readers": [{"name", "session", "url", "token"}]}``; out: ``{"up": n}`` once all are ready.
Then ``{"until": type, "boundS"}``; out: ``{"reached": n}``, how many have rendered such an event.
Then ``{"end": true}``; out: ``{"lines": n}`` and so many lines, the notes of a history.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from types import SimpleNamespace
from typing import Any, cast

import uvloop

from moorage.client import EventStream
from moorage_chaos import mutants
from moorage_chaos.clients import Clients
from moorage_chaos.drivers.base import Driver
from moorage_chaos.history import History
from moorage_chaos.readers import Reader

AT_ONCE = 50
"""Readers being connected at the same time."""


def say(**message: Any) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


async def follow(clients: Clients, wanted: list[dict[str, str]]) -> list[Reader]:
    """All of them, ready. Raises ClientError."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(row: dict[str, str]) -> Reader:
        async with places:
            made = Reader(
                clients, row["name"], row["session"], EventStream(row["url"], row["token"], row["session"])
            )
            made.note_states()
            await made.start()
            return made

    return list(await asyncio.gather(*(one(row) for row in wanted)))


async def serve() -> None:
    loop = asyncio.get_running_loop()
    source = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(source), sys.stdin)
    config = json.loads(await source.readline())
    if config["mutant"] in mutants.OF_CLIENTS:
        mutants.apply(config["mutant"])
    history = History()
    clients = Clients(cast(Driver, SimpleNamespace()), history, random.Random())
    readers = await follow(clients, config["readers"])
    say(up=len(readers))
    while line := await source.readline():
        order = json.loads(line)
        if "until" in order:
            reached = await asyncio.gather(*(one.until(order["until"], order["boundS"]) for one in readers))
            say(reached=sum(reached))
            continue
        for one in readers:
            await one.close()
        await clients.close()
        say(lines=len(history.events))
        for event in history.events:
            sys.stdout.buffer.write(event.line() + b"\n")
        sys.stdout.buffer.flush()
        return


if __name__ == "__main__":
    uvloop.run(serve())
