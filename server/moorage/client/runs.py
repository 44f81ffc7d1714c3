"""What a daemon runs: one run a request id, and what it returned, for a while. No I/O."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moorage.client.socket import Socket


@dataclass(slots=True, eq=False)
class Run:
    """A handler at work, and the acks that wait for it: several if the request came again."""

    request_id: str
    resumable: bool
    replies: list[tuple[Socket, int]] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    cancelled: bool = False


class Results:
    """The last results by request id: at most ``count``, none older than ``age`` seconds."""

    def __init__(self, count: int, age: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._age = age
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, request_id: str, result: Any) -> None:
        self._kept[request_id] = (self._clock() + self._age, result)
        self._kept.move_to_end(request_id)
        while len(self._kept) > self._count:
            self._kept.popitem(last=False)
        self._expire()

    def get(self, request_id: str) -> tuple[Any] | None:
        """The result in a tuple of one, since None is a result too."""
        self._expire()
        entry = self._kept.get(request_id)
        return None if entry is None else (entry[1],)

    def _expire(self) -> None:
        now = self._clock()
        while self._kept:
            oldest = next(iter(self._kept))
            if self._kept[oldest][0] > now:
                break
            del self._kept[oldest]
