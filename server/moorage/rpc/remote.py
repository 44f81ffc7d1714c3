"""Calls between Moorage replicas, over their inboxes. Both sides live here: requests we sent, requests we run.

At most once on the socket: a request carries an id that the running replica remembers, so it may be sent again
after a lost connection; answers are kept until they certainly arrived somewhere, and are sent again when the
caller's replica asks. Messages (msgpack arrays inside an inbox message), caller's side first:

    q id sid method params requestId deadlineMs   run this          a id result      the answer
    c id                                          cancelled         g id delivered   the socket is gone
    s [ids]                                       do you run these? n id             no such socket here: never ran
                                                                    u [ids]          never seen: send again
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ormsgpack
import structlog

from moorage.cluster.inboxes import GoneBy, Member
from moorage.cluster.membership import Membership
from moorage.errors import BackplaneError, Delivered
from moorage.rpc.registry import Entry
from moorage.rpc.serving import EndKind, OnEnd, Serving

log = structlog.get_logger("moorage.rpc")

LOOK_S = 0.02
"""Distance of looks at the inboxes of replicas that hold calls of ours: one command for all of them, and only while
there are any. A dead process is seen 3 ms after its end (facts), so half of this is the expected detection time."""
SYNC_BATCH = 1000
"""Ids in one ``s`` or ``u`` message."""
ENDED_MAX = 16_384
"""Ended requests whose id is remembered, so that one that arrives late or twice never runs again."""
ENDED_MAX_BYTES = 8 << 20
"""Bytes of answers kept for callers whose connection was renewed."""
CANCELS_MAX = 10_000
"""Cancels kept while Redis is away; above it the oldest is forgotten (its request ends by its deadline)."""


@dataclass(slots=True, eq=False)
class Sent:
    """A request of ours on another replica."""

    replica: str
    message: bytes
    on_end: OnEnd
    delivered: Delivered = "unknown"
    generation: int = 0
    """Backplane generation in which it was sent or last asked about."""
    undelivered: bool = False
    """Its last publish reached nobody."""
    busy: bool = False
    """A publish of it is under way."""


class Remote:
    """Carrier to the other replicas, and the server of their requests."""

    def __init__(self, membership: Membership, serving: Serving, orphan_s: float) -> None:
        """``orphan_s``: how long a request runs on after its caller's replica was lost (the recovery window)."""
        self._members = membership
        self._orphan_s = orphan_s
        self._serving = serving
        self._sent: dict[str, Sent] = {}
        self._origins: dict[str, str] = {}
        self._ended: OrderedDict[str, bytes] = OrderedDict()
        self._ended_bytes = 0
        self._unsent: dict[str, tuple[str, bytes]] = {}
        self._cancels: deque[tuple[str, str]] = deque(maxlen=CANCELS_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.Task[None] | None = None
        self.on_evidence: Callable[[str], None] = lambda kind: None
        self.on_late: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._sent)

    # -- Carrier ---------------------------------------------------------------------------------------
    def send(
        self,
        call_id: str,
        entry: Entry,
        method: str,
        params: Any,
        request_id: str,
        deadline_ms: float | None,
        on_end: OnEnd,
    ) -> None:
        message = ormsgpack.packb(["q", call_id, entry.sid, method, params, request_id, deadline_ms])
        sent = Sent(entry.replica, message, on_end, generation=self._members.backplane.generation)
        self._hand_over(call_id, sent)
        self._sent[call_id] = sent
        self._arm()

    def cancel(self, call_id: str) -> None:
        sent = self._sent.pop(call_id, None)
        if sent is not None:
            self._cancels.append((sent.replica, call_id))
            self._flush_cancels()
            self._arm()

    def delivered(self, call_id: str) -> Delivered:
        sent = self._sent.get(call_id)
        return sent.delivered if sent else "unknown"

    def _hand_over(self, call_id: str, sent: Sent) -> None:
        published = self._members.send(sent.replica, sent.message)
        sent.busy = True

        def done(future: asyncio.Future[int]) -> None:
            sent.busy = False
            if future.cancelled() or future.exception() is not None:
                return  # unknown: asked about when the links are up again
            sent.undelivered = future.result() == 0
            if not sent.undelivered:
                self._members.seen(sent.replica)
            elif self._sent.get(call_id) is sent:
                self._look_now()

        published.add_done_callback(done)

    # -- evidence --------------------------------------------------------------------------------------
    def _arm(self) -> None:
        if self._timer is None and (self._sent or self._cancels or self._unsent):
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._members.backplane.available:
            self._flush_cancels()
            self._flush_answers()
            self._sync()
            self._look_now()
        self._arm()

    def _look_now(self) -> None:
        if self._looking is None and self._sent:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            await self._members.look({sent.replica for sent in self._sent.values()})
        except Exception:
            log.exception("look at inboxes failed")
        finally:
            self._looking = None
        if not self._members.backplane.available:
            return
        for call_id, sent in list(self._sent.items()):
            if sent.undelivered and not sent.busy and sent.replica in self._members.members:
                # It lives but had no receiver for a moment: its subscription is being renewed. Nobody got it.
                self._hand_over(call_id, sent)

    def _sync(self) -> None:
        """Ask about requests that were under way when links were renewed."""
        generation = self._members.backplane.generation
        stale: dict[str, list[str]] = {}
        for call_id, sent in self._sent.items():
            if sent.generation != generation and not sent.busy and not sent.undelivered:
                stale.setdefault(sent.replica, []).append(call_id)
        for replica, ids in stale.items():
            if replica not in self._members.members:
                continue
            for start in range(0, len(ids), SYNC_BATCH):
                self._ask(replica, ids[start : start + SYNC_BATCH], generation)

    def _ask(self, replica: str, ids: list[str], generation: int) -> None:
        asked = [self._sent[i] for i in ids]
        try:
            published = self._members.send(replica, ormsgpack.packb(["s", ids]))
        except BackplaneError:
            return
        for sent in asked:
            sent.busy = True

        def done(future: asyncio.Future[int]) -> None:
            arrived = not future.cancelled() and future.exception() is None and future.result() > 0
            for sent in asked:
                sent.busy = False
                if arrived:
                    sent.generation = generation

        published.add_done_callback(done)

    def relinked(self, replica: str) -> None:
        """``replica`` renewed its links: what was on its way to it may be lost."""
        for sent in self._sent.values():
            if sent.replica == replica:
                sent.generation = -1
        self._arm()

    def gone(self, member: Member, kind: GoneBy) -> None:
        """Positive evidence: every request of ours on that replica ends."""
        lost = [(i, s) for i, s in self._sent.items() if s.replica == member.replica]
        for call_id, _ in lost:
            del self._sent[call_id]
        self._cancels = deque((c for c in self._cancels if c[0] != member.replica), maxlen=CANCELS_MAX)
        for _, sent in lost:
            self.on_evidence(kind)
            if sent.undelivered:
                sent.on_end("absent", None)
            else:
                sent.on_end("gone", sent.delivered)
        orphans = [i for i, origin in self._origins.items() if origin == member.replica]
        if orphans:
            asyncio.get_running_loop().call_later(self._orphan_s, self._orphaned, member.replica, orphans)

    def _orphaned(self, replica: str, call_ids: list[str]) -> None:
        if replica not in self._members.members:
            for call_id in call_ids:
                if self._origins.get(call_id) == replica:
                    self._forget_run(call_id)

    def disowned(self, replica: str) -> None:
        """``replica`` could not see us and ended its calls here: what still runs for it, runs for nobody."""
        for call_id in [i for i, origin in self._origins.items() if origin == replica]:
            self._forget_run(call_id)

    def renewed(self) -> None:
        """We stalled and are a new generation: all requests that ran here for others were ended there."""
        for call_id in list(self._origins):
            self._forget_run(call_id)
        for sent in self._sent.values():
            sent.generation = -1

    def _forget_run(self, call_id: str) -> None:
        del self._origins[call_id]
        self._remember(call_id, b"")
        self._serving.cancel(call_id)

    # -- receiving -------------------------------------------------------------------------------------
    def received(self, replica: str, payload: bytes) -> None:
        """An inbox message of ``replica``. Raises ValueError, TypeError or IndexError on what does not fit."""
        kind, *rest = ormsgpack.unpackb(payload)
        if kind == "q":
            self._run(replica, *rest)
        elif kind == "a":
            call_id, result = rest
            self._end(replica, call_id, "answer", result)
        elif kind == "g":
            call_id, delivered = rest
            self._end(replica, call_id, "gone", delivered if delivered in ("yes", "unknown") else "unknown")
        elif kind == "n":
            self._end(replica, rest[0], "absent", None)
        elif kind == "c":
            self._cancelled(replica, rest[0])
        elif kind == "s":
            self._asked(replica, rest[0])
        elif kind == "u":
            self._unknown(replica, rest[0])

    def _end(self, replica: str, call_id: str, kind: EndKind, value: Any) -> None:
        sent = self._sent.get(call_id)
        if sent is None or sent.replica != replica:
            if kind == "answer":
                self.on_late()
            return
        del self._sent[call_id]
        if kind == "gone":
            self.on_evidence("socket_gone")
        sent.on_end(kind, value)

    def _unknown(self, replica: str, ids: list[str]) -> None:
        for call_id in ids:
            sent = self._sent.get(call_id)
            if sent is not None and sent.replica == replica and not sent.busy:
                try:
                    self._hand_over(call_id, sent)
                except BackplaneError:
                    sent.generation = -1

    # -- running for others ----------------------------------------------------------------------------
    def _run(
        self,
        origin: str,
        call_id: str,
        sid: str,
        method: str,
        params: Any,
        request_id: str,
        deadline_ms: float | None,
    ) -> None:
        if call_id in self._origins or call_id in self._ended:
            return  # sent again after a lost connection, or cancelled before it came
        member = self._members.members.get(origin)
        offset = member.clock_ms if member is not None else float("inf")
        if deadline_ms is not None and time.time() * 1000 - offset > deadline_ms:
            # By the caller's clock, as far as we know it, nobody waits for this one any more.
            self._remember(call_id, b"")
            return
        self._origins[call_id] = origin

        def on_end(kind: EndKind, value: Any) -> None:
            del self._origins[call_id]
            if kind == "answer":
                try:
                    message = ormsgpack.packb(["a", call_id, value])
                except (TypeError, ValueError):
                    log.warning("an answer could not be carried", method=method)
                    message = ormsgpack.packb(["a", call_id, None])
            elif kind == "gone":
                message = ormsgpack.packb(["g", call_id, value])
            else:
                message = ormsgpack.packb(["n", call_id])
            self._answer(origin, call_id, message)

        self._serving.run(call_id, sid, method, params, request_id, on_end)

    def _answer(self, origin: str, call_id: str, message: bytes) -> None:
        self._remember(call_id, message)
        try:
            published = self._members.send(origin, message)
        except BackplaneError:
            self._unsent[call_id] = (origin, message)
            self._arm()
            return

        def done(future: asyncio.Future[int]) -> None:
            if future.cancelled() or future.exception() is not None or future.result() == 0:
                self._unsent[call_id] = (origin, message)
                self._arm()

        published.add_done_callback(done)

    def _flush_answers(self) -> None:
        """Answers that reached nobody, while their caller's replica lives. A dead one's are given up."""
        waiting, self._unsent = self._unsent, {}
        for call_id, (origin, message) in waiting.items():
            if origin in self._members.members:
                self._answer(origin, call_id, message)

    def _remember(self, call_id: str, message: bytes) -> None:
        self._ended_bytes += len(message) - len(self._ended.pop(call_id, b""))
        self._ended[call_id] = message
        while len(self._ended) > ENDED_MAX or self._ended_bytes > ENDED_MAX_BYTES:
            _, old = self._ended.popitem(last=False)
            self._ended_bytes -= len(old)

    def _cancelled(self, replica: str, call_id: str) -> None:
        if self._origins.get(call_id) == replica:
            self._forget_run(call_id)
        elif call_id not in self._ended:
            self._remember(call_id, b"")

    def _asked(self, replica: str, ids: list[str]) -> None:
        unknown = []
        for call_id in ids:
            if call_id in self._origins:
                continue
            message = self._ended.get(call_id)
            if message:
                self._answer(replica, call_id, message)
            elif message is None:
                unknown.append(call_id)
        if unknown:
            self._members.send(replica, ormsgpack.packb(["u", unknown]))

    def _flush_cancels(self) -> None:
        while self._cancels and self._members.backplane.available:
            replica, call_id = self._cancels.popleft()
            if replica in self._members.members:
                try:
                    self._members.send(replica, ormsgpack.packb(["c", call_id]))
                except BackplaneError:
                    self._cancels.appendleft((replica, call_id))
                    return
