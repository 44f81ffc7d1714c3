"""Inboxes as proof of life: a live peer subscribes to its inbox, and Redis counts the subscribers.

An inbox without a receiver proves the end of its owner when, in one and the same whole connection of ours, it had
one before, ours has one now, a second look a moment later finds the same, and the owner did not say in between that
it renews its links. Whatever falls short of that is unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from moorage.errors import BackplaneError
from moorage.storage.backplane import Backplane

INBOX_PREFIX = "moorage:inbox:"
SECOND_LOOK_S = 0.05
"""Distance of the second look at an inbox when a connection was renewed (PROTOCOL, RPC step 4)."""
CONFIRM_S = 0.005
"""Distance of the look that confirms an empty inbox: a peer whose subscription alone was cut says so meanwhile."""
CLOCK_WINDOW_S = 60.0
"""At a drift of 100 ppm, more than clocks have, two windows are wrong by 12 ms."""
GoneBy = Literal["goodbye", "no_receiver", "generation", "beats"]
"""Kinds of positive evidence; label of ``rpc_evidence_total``."""


@dataclass(slots=True, eq=False)
class Member:
    """A live peer. Times are ``time.monotonic()`` seconds."""

    replica: str
    boot: str
    heard: float
    seen_generation: int = -1
    """Generation of our backplane in which its inbox was last seen with a receiver."""
    applied: int = -1
    """Number of its last tell that we applied; -1: its state is not here yet."""
    acked: int = -1
    """Number of our last tell that it applied."""
    clock: float | None = None
    """Smallest (our monotonic clock - its), in seconds, over the last one to two windows: its clock's offset plus the
    shortest transit. Windows, because clocks drift."""
    clock_window: tuple[float, float, float] = (0.0, float("inf"), float("inf"))
    """End of this window; the smallest in it; the smallest in the one before."""
    asked_at: float = 0.0
    relinking: bool = False
    """It said that it lost a link, and has not yet said that all are up again."""
    inbox: str = field(init=False)

    def __post_init__(self) -> None:
        self.inbox = f"{INBOX_PREFIX}{self.replica}:{self.boot}"

    def compare_clocks(self, ours: float, its: float) -> None:
        """A message that it sent at ``its`` arrived at ``ours``."""
        ends, least, before = self.clock_window
        if ours >= ends:
            ends, least, before = ours + CLOCK_WINDOW_S, float("inf"), least
        least = min(least, ours - its)
        self.clock_window = (ends, least, before)
        self.clock = min(least, before)


class Inboxes:
    """Looks at inboxes. ``linked``: all our links are up; set by the owner."""

    def __init__(
        self,
        backplane: Backplane,
        own: Callable[[], str],
        is_current: Callable[[Member], bool],
        is_silent: Callable[[float], bool],
    ) -> None:
        """``own()``: our inbox; ``is_current``: still a member; ``is_silent(heard)``: has missed its beats."""
        self.linked = False
        self._backplane = backplane
        self._own = own
        self._is_current = is_current
        self._is_silent = is_silent
        self._seeing: asyncio.Task[Any] | None = None

    async def proven_gone(self, members: Sequence[Member]) -> list[Member]:
        """Those of ``members`` whose inbox proves their end. A failed look proves nothing."""
        suspects = await self._empty(members)
        if not suspects:
            return []
        generation = self._backplane.generation
        await asyncio.sleep(CONFIRM_S)
        suspects = [m for m in await self._empty(suspects) if not m.relinking]
        gone = [m for m in suspects if m.seen_generation == generation]
        # The others may be renewing their links as we did. Only their missed beats can tell.
        rest = [m for m in suspects if m.seen_generation != generation and self._is_silent(m.heard)]
        if rest:
            await asyncio.sleep(SECOND_LOOK_S)
            gone += await self._empty(rest)
        return gone

    def see(self, members: Iterable[Member]) -> None:
        """See new inboxes once with their receiver, so that their loss is proof later. Never waits."""
        generation = self._backplane.generation
        unseen = [m for m in members if m.seen_generation != generation]
        if unseen and self._seeing is None:
            self._seeing = asyncio.get_running_loop().create_task(self._empty(unseen))
            self._seeing.add_done_callback(self._seen)

    def _seen(self, task: asyncio.Task[Any]) -> None:
        self._seeing = None

    async def _empty(self, members: Sequence[Member]) -> list[Member]:
        """Those without a receiver, while we have one ourselves."""
        if not members or not self.linked:
            return []
        generation = self._backplane.generation
        try:
            reply = await self._backplane.command(
                "PUBSUB", "NUMSUB", self._own(), *(m.inbox for m in members)
            )
        except BackplaneError:
            return []
        if int(reply[1]) == 0 or not self.linked or self._backplane.generation != generation:
            return []
        empty = []
        for member, receivers in zip(members, reply[3::2], strict=True):
            if int(receivers):
                member.seen_generation = generation
            elif self._is_current(member):
                empty.append(member)
        return empty
