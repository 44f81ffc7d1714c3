"""What several rows need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any

from moorage_chaos.clients import Clients
from moorage_chaos.drivers.base import Driver, DriverError, Replica
from moorage_chaos.history import History, Operation


def replicas(driver: Driver, at_least: int = 2) -> list[Replica]:
    """All replicas. Raises DriverError if the system has too few for the row."""
    found = list(driver.replicas)
    if len(found) < at_least:
        raise DriverError(f"the row needs {at_least} replicas, there are {len(found)}")
    return found


async def together(work: Iterable[Awaitable[Any]]) -> list[Any]:
    """All at once; the first that raises is raised when all have ended."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


async def running(clients: Clients, count: int, group: str, bound_s: float = 5.0) -> None:
    """Wait until ``count`` calls tagged ``group`` have reached their daemon and are still open."""
    history = clients.history

    def reached() -> bool:
        calls = {
            p.invoke.id for p in history.pairs("call") if p.value.get("group") == group and p.end is None
        }
        return sum(run.value.get("call") in calls for run in history.pairs("run")) >= count

    await clients.until(reached, bound_s, f"{count} calls of {group} at work")


def ended(operations: Iterable[Operation]) -> bool:
    return all(operation.done for operation in operations)


async def list_keys(driver: Driver, history: History) -> None:
    """Write a ``keys`` note: every key of the Redis with its type and time to live in ms (-1: none)."""
    import redis.asyncio

    client = redis.asyncio.Redis.from_url(driver.redis.url, socket_timeout=5, decode_responses=True)
    try:
        keys = [name async for name in client.scan_iter(count=500)]
        rows = [[name, await client.type(name), await client.pttl(name)] for name in sorted(keys)]
    finally:
        await client.aclose()
    history.note("keys", keys=rows)
