"""Carrier to the other replicas, over their inboxes. What they run is :mod:`moorage.rpc.hosted`.

At most once on the socket: a request carries an id that the running replica remembers, so it may be sent again
after a lost connection; answers are kept until they certainly arrived somewhere, and are sent again when the
caller's replica asks. Messages (msgpack arrays inside an inbox message), caller's side first; ``deadline`` is on
the caller's monotonic clock, ``age`` is seconds:

    q id sid method params requestId deadline     run this          a id result      the answer
    c id                                          cancelled         g id delivered   the socket is gone
    s [ids] age                                   do you run these? n id             no such socket here: never ran
                                                                    u [ids]          never seen: send again
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ormsgpack
import structlog

from moorage.cluster.inboxes import GoneBy, Member
from moorage.cluster.membership import Membership
from moorage.errors import BackplaneError, BackplaneUnavailable, Delivered
from moorage.rpc.hosted import Hosted
from moorage.rpc.registry import Entry
from moorage.rpc.serving import EndKind, OnEnd, Serving

log = structlog.get_logger("moorage.rpc")

LOOK_S = 0.01
"""Distance of looks at the inboxes of replicas that hold calls of ours: one command for all of them, and only while
there are any. A dead process is seen 3 ms after its end (facts), so half of this is the expected detection time."""
SYNC_BATCH = 1000
"""Ids in one ``s`` message."""
CANCELS_MAX = 10_000
"""Cancels kept while Redis is away; above it the oldest is forgotten (its request ends by its deadline)."""


@dataclass(slots=True, eq=False)
class Sent:
    """A request of ours on another replica."""

    call_id: str
    replica: str
    message: bytes
    on_end: OnEnd
    at: float = field(default_factory=time.monotonic)
    busy: bool = False
    """A publish of it is under way."""


@dataclass(slots=True, eq=False)
class Box:
    """Our requests on one replica, by call id."""

    sent: dict[str, Sent] = field(default_factory=dict)
    undelivered: dict[str, Sent] = field(default_factory=dict)
    """Their last publish reached nobody."""
    unsure: dict[str, Sent] = field(default_factory=dict)
    """Request or answer may have been lost with a link: to be asked about."""


class Remote:
    """Carrier to the other replicas, and the way in for their requests."""

    def __init__(self, membership: Membership, serving: Serving, orphan_s: float) -> None:
        """``orphan_s``: how long a request runs on after its caller's replica was lost (the recovery window)."""
        self._members = membership
        self.hosted = Hosted(membership, serving, orphan_s)
        self._sent: dict[str, Sent] = {}
        self._boxes: dict[str, Box] = {}
        self._generation = membership.backplane.generation
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
        deadline: float | None,
        on_end: OnEnd,
    ) -> None:
        message = ormsgpack.packb(["q", call_id, entry.sid, method, params, request_id, deadline])
        sent = Sent(call_id, entry.replica, message, on_end)
        self._hand_over(sent)
        self._sent[call_id] = sent
        box = self._boxes.get(entry.replica)
        if box is None:
            box = self._boxes[entry.replica] = Box()
        box.sent[call_id] = sent
        self._arm()

    def cancel(self, call_id: str) -> None:
        sent = self._take(call_id)
        if sent is not None:
            self._cancels.append((sent.replica, call_id))
            self._flush_cancels()
            self._arm()

    def delivered(self, call_id: str) -> Delivered:
        return "unknown"

    def _hand_over(self, sent: Sent) -> None:
        published = self._members.send(sent.replica, sent.message)
        member = self._members.members[sent.replica]
        sent.busy = True

        def done(future: asyncio.Future[int]) -> None:
            sent.busy = False
            failed = future.cancelled() or future.exception() is not None
            received = not failed and future.result() > 0
            if received:
                self._members.seen(member)
            if self._sent.get(sent.call_id) is not sent:
                return
            box = self._boxes[sent.replica]
            box.undelivered.pop(sent.call_id, None)
            if failed:
                box.unsure[sent.call_id] = sent
            elif not received:
                box.undelivered[sent.call_id] = sent
                self._look_now()

        published.add_done_callback(done)

    def _take(self, call_id: str) -> Sent | None:
        sent = self._sent.pop(call_id, None)
        if sent is not None:
            box = self._boxes[sent.replica]
            del box.sent[call_id]
            box.undelivered.pop(call_id, None)
            box.unsure.pop(call_id, None)
            if not box.sent:
                del self._boxes[sent.replica]
        return sent

    # -- evidence --------------------------------------------------------------------------------------
    def _arm(self) -> None:
        if self._timer is None and (self._sent or self._cancels):
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._tick)

    def _tick(self) -> None:
        """Costs what there are replicas, not what there are calls, unless links were renewed."""
        self._timer = None
        if self._members.backplane.available:
            if self._generation != self._members.backplane.generation:
                self._generation = self._members.backplane.generation
                self._all_unsure()
            self._flush_cancels()
            self._sync()
            self._look_now()
        self._arm()

    def _look_now(self) -> None:
        if self._looking is None and self._sent:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            await self._members.look(list(self._boxes))
            for replica, box in list(self._boxes.items()):
                for sent in list(box.undelivered.values()):
                    if not sent.busy and replica in self._members.members:
                        # It lives but had no receiver for a moment: its subscription is being renewed. Nobody got it.
                        self._hand_over(sent)
        except BackplaneUnavailable:
            pass
        except Exception:
            log.exception("look at inboxes failed")
        finally:
            self._looking = None

    def _all_unsure(self) -> None:
        for box in self._boxes.values():
            box.unsure.update(box.sent)

    def _sync(self) -> None:
        """Ask about requests that were under way when links were renewed."""
        for replica, box in self._boxes.items():
            if box.unsure and replica in self._members.members:
                ready = [
                    sent
                    for sent in box.unsure.values()
                    if not sent.busy and sent.call_id not in box.undelivered
                ]
                for start in range(0, len(ready), SYNC_BATCH):
                    self._ask(replica, box, ready[start : start + SYNC_BATCH])

    def _ask(self, replica: str, box: Box, asked: list[Sent]) -> None:
        age = time.monotonic() - min(sent.at for sent in asked)
        try:
            published = self._members.send(
                replica, ormsgpack.packb(["s", [sent.call_id for sent in asked], age])
            )
        except BackplaneError:
            return
        for sent in asked:
            del box.unsure[sent.call_id]

        def done(future: asyncio.Future[int]) -> None:
            if future.cancelled() or future.exception() is not None or future.result() == 0:
                for sent in asked:
                    self._unsure(sent)

        published.add_done_callback(done)

    def _unsure(self, sent: Sent) -> None:
        if self._sent.get(sent.call_id) is sent:
            self._boxes[sent.replica].unsure[sent.call_id] = sent

    def relinked(self, replica: str) -> None:
        """``replica`` renewed its links: what was on its way to it or from it may be lost."""
        if (box := self._boxes.get(replica)) is not None:
            box.unsure.update(box.sent)

    def gone(self, member: Member, kind: GoneBy) -> None:
        """Positive evidence: every request of ours on that replica ends."""
        box = self._boxes.pop(member.replica, None) or Box()
        for call_id in box.sent:
            self._sent.pop(call_id, None)
        self._cancels = deque((c for c in self._cancels if c[0] != member.replica), maxlen=CANCELS_MAX)
        for call_id, sent in box.sent.items():
            self.on_evidence(kind)
            if call_id in box.undelivered and not sent.busy:
                sent.on_end("absent", None)
            else:
                sent.on_end("gone", "unknown")
        self.hosted.gone(member)

    def disowned(self, replica: str) -> None:
        """``replica`` could not see us for a while and had given us up."""
        self.hosted.disowned(replica)
        self.relinked(replica)

    def renewed(self) -> None:
        """We stalled and are a new generation."""
        self.hosted.renewed()
        self._all_unsure()

    # -- receiving -------------------------------------------------------------------------------------
    def received(self, replica: str, payload: bytes) -> None:
        """An inbox message of ``replica``. Raises ValueError, TypeError or IndexError on what does not fit."""
        kind, *rest = ormsgpack.unpackb(payload)
        if kind == "q":
            self.hosted.run(replica, *rest)
        elif kind == "a":
            call_id, result = rest
            self._end(replica, call_id, "answer", result)
        elif kind == "g":
            call_id, delivered = rest
            self._end(replica, call_id, "gone", delivered if delivered in ("yes", "unknown") else "unknown")
        elif kind == "n":
            self._end(replica, rest[0], "absent", None)
        elif kind == "c":
            self.hosted.cancelled(replica, rest[0])
        elif kind == "s":
            call_ids, age_s = rest
            self.hosted.asked(self._members.members[replica], call_ids, age_s)
        elif kind == "u":
            self._unknown(replica, rest[0])

    def _end(self, replica: str, call_id: str, kind: EndKind, value: Any) -> None:
        sent = self._sent.get(call_id)
        if sent is None or sent.replica != replica:
            if kind == "answer":
                self.on_late()
            return
        self._take(call_id)
        if kind == "gone":
            self.on_evidence("socket_gone")
        sent.on_end(kind, value)

    def _unknown(self, replica: str, call_ids: list[str]) -> None:
        for call_id in call_ids:
            sent = self._sent.get(call_id)
            if sent is None or sent.replica != replica:
                continue
            try:
                if sent.busy:
                    self._unsure(sent)
                else:
                    self._hand_over(sent)
            except BackplaneError:
                self._unsure(sent)

    # -- cancels ---------------------------------------------------------------------------------------
    def _flush_cancels(self) -> None:
        while self._cancels and self._members.backplane.available:
            replica, call_id = self._cancels.popleft()
            if replica in self._members.members:
                self._send_cancel(replica, call_id)

    def _send_cancel(self, replica: str, call_id: str) -> None:
        published = self._members.send(replica, ormsgpack.packb(["c", call_id]))

        def done(future: asyncio.Future[int]) -> None:
            if future.cancelled() or future.exception() is not None or future.result() == 0:
                self._cancels.append((replica, call_id))
                self._arm()

        published.add_done_callback(done)
