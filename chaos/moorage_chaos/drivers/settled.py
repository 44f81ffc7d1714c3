"""The start state of a system, seen from outside."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import orjson

from moorage_chaos.drivers.base import Replica
from moorage_chaos.drivers.probe import get

REGISTRATIONS = "rpc_registrations"
"""Gauge of /metrics: registrations a replica knows of; equal on all replicas once they agree."""


async def settled(
    replicas: Iterable[Replica], metrics: Callable[[Replica], Awaitable[dict[str, float]]]
) -> bool:
    """No replica is degraded (all reach Redis) and all know as many registrations. Raises what ``metrics`` raises."""
    known = set()
    for place in replicas:
        try:
            _, body = await get(place.direct_url + "/ready", timeout_s=3.0)
            if orjson.loads(body or b"{}").get("degraded"):
                return False
        except (OSError, TimeoutError, ValueError):
            return False
        known.add((await metrics(place)).get(REGISTRATIONS))
    return len(known) <= 1
