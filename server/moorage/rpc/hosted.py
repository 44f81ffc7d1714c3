"""Requests of other replicas that run on sockets of this one: the answering side of :mod:`moorage.rpc.remote`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import ormsgpack
import structlog

from moorage.cluster.inboxes import Member
from moorage.cluster.membership import Membership
from moorage.errors import BackplaneError
from moorage.rpc.ended import Ended
from moorage.rpc.serving import EndKind, Serving

log = structlog.get_logger("moorage.rpc")

RETRY_S = 0.02
"""Distance of tries to send answers that reached nobody."""
SWEEP_S = 10.0
"""Requests past their deadline are looked for this often; normally their cancel came long before."""
LONGEST_RUN_S = 600.0
"""Assumed deadline where the caller's clock is not known yet; the default of ``rpc_call_timeout_max_ms``."""


@dataclass(slots=True, eq=False)
class Running:
    """A request that runs here for ``origin``; ``boot``: the generation of it that last said it waits."""

    origin: str
    boot: str
    expires: float
    """``time.monotonic()`` seconds from which on surely nobody waits."""


class Hosted:
    """At most once: an id that runs or ended here does not run again."""

    def __init__(self, members: Membership, serving: Serving, orphan_s: float) -> None:
        self._members = members
        self._serving = serving
        self._orphan_s = orphan_s
        self._running: dict[str, Running] = {}
        self._ended = Ended()
        self._unsent: dict[str, str] = {}
        self._retry: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._running)

    def run(
        self,
        origin: str,
        call_id: str,
        sid: str,
        method: str,
        params: Any,
        request_id: str,
        deadline: float | None,
    ) -> None:
        """``deadline``: ``time.monotonic()`` seconds of the origin."""
        if call_id in self._running or call_id in self._ended:
            return  # sent again after a lost connection, or cancelled before it came
        member = self._members.members[origin]
        now = time.monotonic()
        expires = now + LONGEST_RUN_S
        if deadline is not None and member.clock is not None:
            expires = deadline + member.clock
            if expires < now:
                self._ended.add(call_id)
                return
        self._running[call_id] = Running(origin, member.boot, expires)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

        def on_end(kind: EndKind, value: Any) -> None:
            del self._running[call_id]
            if kind == "answer":
                try:
                    message = ormsgpack.packb(["a", call_id, value])
                except (TypeError, ValueError):
                    log.warning("an answer could not be carried")
                    message = ormsgpack.packb(["a", call_id, None])
            elif kind == "gone":
                message = ormsgpack.packb(["g", call_id, value])
            else:
                message = ormsgpack.packb(["n", call_id])
            self._ended.add(call_id, message)
            self._answer(origin, call_id, message)

        self._serving.run(call_id, sid, method, params, request_id, on_end)

    def cancelled(self, replica: str, call_id: str) -> None:
        """Nobody waits for it any more, perhaps before it came."""
        running = self._running.get(call_id)
        if running is None:
            if call_id not in self._ended:
                self._ended.add(call_id)
        elif running.origin == replica:
            self._forget(call_id)

    def asked(self, member: Member, call_ids: Sequence[str], age_s: float) -> None:
        """``member`` renewed its links and still waits for these, sent at most ``age_s`` ago."""
        unknown = []
        for call_id in call_ids:
            running = self._running.get(call_id)
            if running is not None:
                running.boot = member.boot
            elif (message := self._ended.answer(call_id)) is not None:
                self._answer(member.replica, call_id, message)
            elif self._ended.surely_never(call_id, age_s):
                unknown.append(call_id)
        if unknown:
            try:
                self._members.send(member.replica, ormsgpack.packb(["u", unknown]))
            except BackplaneError:
                pass  # our own link is away: when it is back, the caller hears of it and asks again

    # -- ends that nobody hears of ---------------------------------------------------------------------
    def gone(self, member: Member) -> None:
        """The origin was lost: its callers may come back to another replica within the recovery window."""
        orphans = [i for i, r in self._running.items() if (r.origin, r.boot) == (member.replica, member.boot)]
        if orphans:
            asyncio.get_running_loop().call_later(self._orphan_s, self._orphaned, member, orphans)

    def _orphaned(self, member: Member, call_ids: list[str]) -> None:
        current = self._members.members.get(member.replica)
        if current is not None and current.boot == member.boot:
            return
        for call_id in call_ids:
            running = self._running.get(call_id)
            if running is not None and running.boot == member.boot:
                self._forget(call_id)

    def disowned(self, replica: str) -> None:
        """``replica`` could not see us and ended its calls here: what still runs for it, runs for nobody."""
        self._forget_all(i for i, running in self._running.items() if running.origin == replica)

    def renewed(self) -> None:
        """We stalled and are a new generation: all requests that ran here for others were ended there."""
        self._forget_all(self._running)

    def _sweep(self) -> None:
        self._sweeper = None
        now = time.monotonic()
        self._forget_all(i for i, running in self._running.items() if running.expires < now)
        if self._running:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _forget_all(self, call_ids: Iterable[str]) -> None:
        for call_id in list(call_ids):
            self._forget(call_id)

    def _forget(self, call_id: str) -> None:
        del self._running[call_id]
        self._ended.add(call_id)
        self._serving.cancel(call_id)

    # -- answering -------------------------------------------------------------------------------------
    def _answer(self, origin: str, call_id: str, message: bytes) -> None:
        try:
            published = self._members.send(origin, message)
        except BackplaneError:
            self._unanswered(origin, call_id)
            return

        def done(future: asyncio.Future[int]) -> None:
            if future.cancelled() or future.exception() is not None or future.result() == 0:
                self._unanswered(origin, call_id)

        published.add_done_callback(done)

    def _unanswered(self, origin: str, call_id: str) -> None:
        self._unsent[call_id] = origin
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._flush)

    def _flush(self) -> None:
        """Answers that reached nobody, while their caller's replica lives. A dead one's are given up."""
        self._retry = None
        waiting, self._unsent = self._unsent, {}
        for call_id, origin in waiting.items():
            if origin in self._members.members and (message := self._ended.answer(call_id)) is not None:
                self._answer(origin, call_id, message)
