"""Targets on nodes of the cluster that are no Moorage members (Node replicas): found by asking, not by being told.

They carry no stamp, so any registration of a member is newer. What is found is used at once and not kept.
A target there is gone only after two answered look-ups without it; an unanswered look-up says nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import Any, Protocol

import structlog

from moorage.errors import BackplaneError, Delivered
from moorage.rpc.registry import Entry, Registry
from moorage.rpc.serving import OnEnd

log = structlog.get_logger("moorage.rpc")

FOREIGN = "~foreign"
"""Replica id of their entries in the registry; a tilde sorts after every host name, and no stamp sorts first."""
FIND_LIMITS_MS = (2000, 4000, 8000)
"""Limits of the first look-ups of a method; later ones have the last (PROTOCOL, RPC step 3)."""
FIND_EVERY_S = 0.2
WATCH_EVERY_S = 2.0
WATCH_LIMIT_MS = 500
"""A running target is looked up this often, with this limit (PROTOCOL, RPC step 3)."""
ABSENT_LOOKS = 2


class Asking(Protocol):
    """What is needed of :class:`moorage.cluster.requests.Requests`."""

    def node_count(self) -> Coroutine[Any, Any, int]: ...
    async def fetch_sockets(
        self, rooms: Collection[str], except_: Collection[str], timeout_ms: int
    ) -> tuple[list[Any], bool]: ...
    async def emit_with_ack(
        self, rooms: str, event: str, args: Sequence[Any], timeout_ms: int, *, single: bool
    ) -> tuple[list[Any], bool]: ...


class Foreign:
    """Carrier to sockets of foreign nodes. ``members()``: number of live members, ourselves included."""

    def __init__(
        self,
        requests: Asking,
        registry: Registry,
        members: Callable[[], int],
        emit: Callable[[str, list[Any], list[str]], None],
    ) -> None:
        """``emit(event, args, rooms)`` broadcasts by the stream, without an ack."""
        self._requests = requests
        self._registry = registry
        self._members = members
        self._emit = emit
        self._searches: dict[str, asyncio.Task[None]] = {}
        self._counting: asyncio.Task[int] | None = None
        self._counted_at = 0.0
        self._running: dict[str, tuple[str, str, list[asyncio.Task[None]]]] = {}
        self.on_timeout: Callable[[], None] = lambda: None
        """A look-up stayed incomplete."""

    # -- finding ---------------------------------------------------------------------------------------
    def search(self, room: str, wanted: Callable[[], bool]) -> None:
        """Look for a socket in ``room`` while ``wanted()``; what is found is shown to the registry's watchers."""
        if room not in self._searches:
            task = asyncio.get_running_loop().create_task(self._search(room, wanted))
            self._searches[room] = task
            task.add_done_callback(lambda _: self._searches.pop(room, None))

    async def _search(self, room: str, wanted: Callable[[], bool]) -> None:
        looks = 0
        while wanted():
            try:
                if await self._are_there():
                    limit = FIND_LIMITS_MS[min(looks, len(FIND_LIMITS_MS) - 1)]
                    looks += 1
                    found, complete = await self._requests.fetch_sockets([room], (), limit)
                    if not complete:
                        self.on_timeout()
                    if found and wanted():
                        entry = ["+", room, str(found[0].id), 0, False]
                        self._registry.apply(FOREIGN, [entry])
                        self._registry.drop(FOREIGN)
            except BackplaneError:
                pass
            except Exception:
                log.exception("look-up of foreign nodes failed")
            await asyncio.sleep(FIND_EVERY_S)

    async def _are_there(self) -> bool:
        """Whether the cluster has nodes that are no members; one count for all who wait."""
        loop = asyncio.get_running_loop()
        if self._counting is None or loop.time() - self._counted_at >= FIND_EVERY_S:
            self._counted_at = loop.time()
            self._counting = loop.create_task(self._requests.node_count())
        return await asyncio.shield(self._counting) > self._members()

    # -- Carrier ---------------------------------------------------------------------------------------
    def send(
        self,
        call_id: str,
        entry: Entry,
        method: str,
        params: Any,
        request_id: str,
        deadline: float | None,
        on_end: OnEnd,
    ) -> None:
        """See :class:`moorage.rpc.carrier.Carrier`."""
        left_ms = max(1, round(((deadline or 0) - time.monotonic()) * 1000))
        request = {"method": method, "params": params, "requestId": request_id}
        loop = asyncio.get_running_loop()
        tasks = [
            loop.create_task(self._ask(call_id, entry.sid, request, left_ms, on_end)),
            loop.create_task(self._watch(call_id, entry.sid, on_end)),
        ]
        self._running[call_id] = (entry.sid, request_id, tasks)

    def cancel(self, call_id: str) -> None:
        running = self._take(call_id)
        if running is not None:
            sid, request_id = running
            self._emit("rpc-cancel", [{"requestId": request_id}], [sid])

    def delivered(self, call_id: str) -> Delivered:
        return "unknown"

    async def stop(self) -> None:
        """End all look-ups."""
        tasks: list[asyncio.Task[Any]] = list(self._searches.values())
        if self._counting is not None:
            tasks.append(self._counting)
        for call_id in list(self._running):
            tasks += self._running[call_id][2]
            self._take(call_id)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(
        self, call_id: str, sid: str, request: dict[str, Any], left_ms: int, on_end: OnEnd
    ) -> None:
        answers = await self._guarded(
            self._requests.emit_with_ack(sid, "rpc-request", [request], left_ms, single=True)
        )
        # No answer in time is no evidence: the call's own deadline ends it.
        if answers and self._take(call_id) is not None:
            on_end("answer", answers[0])

    async def _watch(self, call_id: str, sid: str, on_end: OnEnd) -> None:
        absent = 0
        while absent < ABSENT_LOOKS:
            await asyncio.sleep(WATCH_EVERY_S)
            try:
                found, complete = await self._requests.fetch_sockets([sid], (), WATCH_LIMIT_MS)
            except BackplaneError:
                continue
            if found:
                absent = 0
            elif complete:
                absent += 1
            else:
                self.on_timeout()
        if self._take(call_id) is not None:
            on_end("gone", "unknown")

    @staticmethod
    async def _guarded(asked: Awaitable[tuple[list[Any], bool]]) -> list[Any]:
        try:
            return (await asked)[0]
        except (BackplaneError, TypeError, ValueError):
            return []

    def _take(self, call_id: str) -> tuple[str, str] | None:
        running = self._running.pop(call_id, None)
        if running is None:
            return None
        sid, request_id, tasks = running
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()
        return sid, request_id
