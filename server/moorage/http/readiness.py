"""Whether this replica may get traffic: a decision over observations, and the question to its peers.

An outage of Redis that everybody shares must not empty the Service: replicas stay ready and say ``degraded``.
Only a replica that is cut off alone takes itself out.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

Redis = Literal["ok", "down", "unset"]


@dataclass(frozen=True, slots=True)
class Observations:
    """What a replica knows about itself. ``redis`` is "unset" without ``REDIS_URL``."""

    ready_once: bool
    """It has been completely up at least once."""
    draining: bool
    loop_stalled: bool
    redis: Redis
    reader_deaf: bool
    """The stream reader gets nothing though Redis has something."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to ``/ready``."""

    ready: bool
    degraded: bool
    seen: Observations

    def as_json(self) -> dict[str, Any]:
        """``{status: "ok"|"unavailable", degraded, checks:{redis, reader, loop, draining}}``."""
        seen = self.seen
        return {
            "status": "ok" if self.ready else "unavailable",
            "degraded": self.degraded,
            "checks": {
                "redis": seen.redis,
                "reader": "deaf" if seen.reader_deaf else "ok",
                "loop": "stalled" if seen.loop_stalled else "ok",
                "draining": seen.draining,
            },
        }


def decide(seen: Observations, peers_reach_redis: bool | None) -> Verdict:
    """``peers_reach_redis``: None when nobody was asked or answered, which blames nobody."""
    down = seen.redis == "down"
    ready = (
        seen.ready_once
        and not seen.draining
        and not seen.loop_stalled
        and not (seen.redis == "ok" and seen.reader_deaf)
        and not (down and peers_reach_redis is True)
    )
    return Verdict(ready, degraded=down, seen=seen)


class Readiness:
    """``observe`` looks at this replica; ``ask_peers`` says whether any other reaches Redis, bounded by itself."""

    def __init__(
        self,
        observe: Callable[[], Observations],
        ask_peers: Callable[[], Awaitable[bool | None]] | None = None,
    ) -> None:
        self._observe = observe
        self._ask_peers = ask_peers

    async def check(self, *, ask: bool = True) -> Verdict:
        """The verdict now. Peers are asked only where their answer matters; never with ``ask=False``, which is
        how a peer asks us, so that one question does not go round."""
        seen = self._observe()
        if not ask or self._ask_peers is None or not decide(seen, None).ready or seen.redis != "down":
            return decide(seen, None)
        return decide(seen, await self._ask_peers())
