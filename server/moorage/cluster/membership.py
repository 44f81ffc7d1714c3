"""Which Moorage replicas live, and a private inbox for each.

Every replica beats on one channel, tells all others what changed (``tell``), and owns an inbox channel whose
name carries its generation (``boot``), so a restarted process is another peer.

A peer is gone after its goodbye, when its inbox proves it (:mod:`moorage.cluster.inboxes`), when the same replica
shows a new generation, or after ``beat_misses`` missed beats that we could have heard
(:mod:`moorage.cluster.beats`). Everything else is unknown, and waits.

Messages are msgpack arrays whose first item is a kind; a message that does not fit is dropped and counted.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

import ormsgpack
import structlog

from moorage.cluster.asks import Asks
from moorage.cluster.beats import BeatClock
from moorage.cluster.inboxes import INBOX_PREFIX, GoneBy, Inboxes, Member
from moorage.cluster.tells import Tells
from moorage.errors import BackplaneError, BackplaneUnavailable
from moorage.settings import Settings
from moorage.storage.backplane import Backplane
from moorage.ticks import next_tick

log = structlog.get_logger("moorage.membership")

MEMBERS_CHANNEL = "moorage:members"
SYNC_BOUND_S = 2.0
"""How long a starting replica waits for the others' state before it is ready all the same."""


class Membership:
    """Life, tells and inboxes. Upward callbacks are set by the composer before :meth:`start`."""

    def __init__(self, settings: Settings, backplane: Backplane) -> None:
        self.replica = settings.replica_id
        self.boot = secrets.token_hex(6)
        self.members: dict[str, Member] = {}
        self.malformed = 0
        self.backplane = backplane
        self._clock = BeatClock(settings.beat_interval_ms / 1000, settings.beat_misses)
        self._tells = Tells()
        self._pending_acks: set[str] = set()
        self._flush_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._asks = Asks()
        self._left: dict[str, str] = {}
        self._closing = False
        self._hello: asyncio.Future[int] | None = None
        self._inboxes = Inboxes(
            backplane,
            lambda: self.inbox,
            self._is_current,
            lambda heard: self._clock.silent(heard, time.monotonic()),
        )
        self._next_beat = 0.0
        self._beat: asyncio.Future[int] | None = None
        # upward
        self.on_joined: Callable[[Member], None] = lambda member: None
        self.on_gone: Callable[[Member, GoneBy], None] = lambda member, kind: None
        self.on_tell: Callable[[str, list[Any]], None] = lambda replica, items: None
        self.on_snapshot: Callable[[str, list[Any]], None] = lambda replica, items: None
        self.on_message: Callable[[str, bytes], None] = lambda replica, message: None
        self.on_relinked: Callable[[str], None] = lambda replica: None
        self.on_renewed: Callable[[], None] = lambda: None
        self.on_disowned: Callable[[str], None] = lambda replica: None
        self.snapshot: Callable[[], list[Any]] = list
        self.answer: Callable[[str, Any], Any] = lambda kind, payload: None

    # -- life ------------------------------------------------------------------------------------------
    @property
    def inbox(self) -> str:
        return f"{INBOX_PREFIX}{self.replica}:{self.boot}"

    def begin(self) -> None:
        """Before the backplane starts: when its links are up, say hello and collect the others' state."""
        self.backplane.on_up.append(self._link_up)
        self.backplane.on_down.append(self._link_down)
        self.backplane.subscribe(MEMBERS_CHANNEL, self._on_channel)
        self.backplane.subscribe(self.inbox, self._on_inbox)
        self._wait_for_tick(time.monotonic())

    async def synced(self) -> bool:
        """After the links came up: wait until every replica that heard our hello told its state, bounded.

        False: the link was lost, or somebody was silent for :data:`SYNC_BOUND_S`."""
        loop = asyncio.get_running_loop()
        bound = loop.time() + SYNC_BOUND_S
        if self._hello is None:
            return False
        try:
            receivers = await self._hello
        except BackplaneError:
            return False
        while loop.time() < bound:
            if len(self.members) + 1 >= receivers and all(m.applied >= 0 for m in self.members.values()):
                return True
            await asyncio.sleep(0.01)
        log.warning("not every replica told its state in time", known=sorted(self.members))
        return False

    async def stop(self) -> None:
        """Goodbye, bounded by the backplane's reply. Nothing is sent after it: it would bring us back to life."""
        if self._timer:
            self._timer.cancel()
        self._flush()
        self._closing = True
        self._tells.wake(float("inf"))
        try:
            await self._publish(MEMBERS_CHANNEL, ["bye"])
        except BackplaneError:
            pass
        self._asks.give_up()

    def _link_up(self) -> None:
        """The links are (back) up: nobody can be judged by what was missed; ask everybody for what was told."""
        if self._closing:
            return
        self._inboxes.linked = True
        self._clock.unhealthy(time.monotonic())
        self._hello = self._publish(MEMBERS_CHANNEL, ["hello"])
        for member in list(self.members.values()):
            self._ask_state(member)

    def _link_down(self) -> None:
        self._inboxes.linked = False
        self._send_all(["relinking"])  # heard if the command link is still up

    # -- telling ---------------------------------------------------------------------------------------
    def tell(self, item: Any) -> int:
        """Tell all members ``item`` (msgpack-able), in order, batched by the loop tick; returns the tell's number."""
        self._schedule_flush()
        return self._tells.add(item)

    @property
    def last_tell(self) -> int:
        """Number of the last tell."""
        return self._tells.number

    async def told(self, number: int) -> bool:
        """Wait until every live member has applied tell ``number``; False at once when Redis is away."""
        while not self._closing:
            if not self.backplane.available:
                return False
            if all(m.acked >= number for m in self.members.values()):
                return True
            await self._tells.applied(number)
        return False

    def _wake_tellers(self) -> None:
        if self.backplane.available:
            self._tells.wake(min((m.acked for m in self.members.values()), default=float("inf")))
        else:
            self._tells.wake(float("inf"))

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if items := self._tells.take():
            self._send_all(["tell", self._tells.number, items])
        if self._pending_acks:
            for replica in self._pending_acks:
                if (member := self.members.get(replica)) is not None:
                    self._send_quietly(member, ["applied", member.applied])
            self._pending_acks.clear()

    # -- sending ---------------------------------------------------------------------------------------
    def _publish(self, channel: str, message: list[Any]) -> asyncio.Future[int]:
        return self.backplane.publish(channel, ormsgpack.packb([self.replica, self.boot, *message]))

    def _send_all(self, message: list[Any]) -> None:
        if not self._closing:
            self._publish(MEMBERS_CHANNEL, message)

    def _send_quietly(self, member: Member, message: list[Any]) -> None:
        if not self._closing:
            self._publish(member.inbox, message)

    def send(self, replica: str, message: bytes) -> asyncio.Future[int]:
        """Put ``message`` into the inbox of ``replica``; the future is the number of receivers.

        Raises :class:`BackplaneUnavailable` when it cannot be handed to Redis now; the future may fail with
        ``BackplaneUnknown``.
        """
        member = self.members.get(replica)
        if member is None or self._closing or not self.backplane.available:
            raise BackplaneUnavailable("no member or no Redis")
        return self._publish(member.inbox, ["msg", message])

    async def ask(self, kind: str, payload: Any, timeout_s: float) -> tuple[list[Any], bool]:
        """Ask every live peer; ``(answers, complete)``. ``complete`` is False if any peer did not answer, or if
        Redis is out of reach: then there may be peers that we do not know."""
        if not self.backplane.available:
            return [], False
        if not self.members:
            return [], True
        ask_id, ask = self._asks.open(self.members)
        try:
            self._send_all(["ask", ask_id, kind, payload])
            await asyncio.wait_for(ask.done.wait(), timeout_s)
        except TimeoutError:
            pass
        finally:
            self._asks.close(ask_id)
        return ask.answers, not ask.missing

    # -- evidence --------------------------------------------------------------------------------------
    def seen(self, member: Member) -> None:
        """A publish to its inbox had a receiver."""
        member.seen_generation = self.backplane.generation

    async def look(self, replicas: Iterable[str]) -> None:
        """Look at the inboxes of ``replicas`` and end the life of those that are proven gone."""
        members = [m for r in replicas if (m := self.members.get(r)) is not None]
        for member in await self._inboxes.proven_gone(members):
            self._gone(member, "no_receiver")

    def _is_current(self, member: Member) -> bool:
        return self.members.get(member.replica) is member

    def _gone(self, member: Member, kind: GoneBy) -> None:
        if not self._is_current(member):
            return
        del self.members[member.replica]
        self._left[member.replica] = member.boot
        while len(self._left) > 1000:
            self._left.pop(next(iter(self._left)))
        log.info("member gone", replica=member.replica, evidence=kind)
        self._asks.gone(member.replica)
        self.on_gone(member, kind)
        self._wake_tellers()

    # -- beats -----------------------------------------------------------------------------------------
    def _wait_for_tick(self, now: float) -> None:
        loop, ahead = asyncio.get_running_loop(), self._clock.next_look(self.members.values(), now) - now
        when = min(next_tick(self._clock.tick_s, loop.time()), loop.time() + ahead)
        self._timer = loop.call_at(when, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        if self._closing:
            return
        self._wait_for_tick(now)
        self._check_own_stall(now)
        self._clock.ticked(now, linked=self.backplane.available)
        if now >= self._next_beat:
            # Slack: a tick may be a little early.
            self._next_beat = now + self._clock.interval_s - self._clock.tick_s / 2
            if self.backplane.available and (self._beat is None or self._beat.done()):  # a beat says: I hear
                self._clock.sent(now)
                self._beat = self._publish(MEMBERS_CHANNEL, ["beat", self._tells.number, now])
                self._inboxes.see(self.members.values())
        for member in list(self.members.values()):
            if self._clock.silent(member.heard, now):
                self._gone(member, "beats")
            elif member.applied < 0:
                self._ask_state(member)
        self._wake_tellers()

    def _check_own_stall(self, now: float) -> None:
        """After a stall in which the others must have given us up, go on as a new generation. Checked before any
        message is handled: what waits in the old inbox was answered for us long ago."""
        if not self._clock.stalled(now):
            return
        self._clock.ticked(now, linked=self.backplane.available)
        self._clock.unhealthy(now)
        old = self.inbox
        self.boot = secrets.token_hex(6)
        log.warning("this process stalled; it rejoins as a new generation")
        self.backplane.unsubscribe(old, self._on_inbox)
        self.backplane.subscribe(self.inbox, self._on_inbox)
        self._send_all(["hello"])
        self.on_renewed()

    # -- receiving -------------------------------------------------------------------------------------
    def _on_channel(self, payload: bytes) -> None:
        self._receive(payload, self._from_channel)

    def _on_inbox(self, payload: bytes) -> None:
        boot = self.boot
        self._check_own_stall(time.monotonic())
        if boot == self.boot:
            self._receive(payload, self._from_inbox)

    def _receive(
        self, payload: bytes, handle: Callable[[Member | None, str, str, str, list[Any]], None]
    ) -> None:
        try:
            replica, boot, kind, *rest = ormsgpack.unpackb(payload)
            if not (isinstance(replica, str) and isinstance(boot, str) and isinstance(kind, str)):
                raise TypeError
        except (ValueError, TypeError):
            self.malformed += 1
            return
        if replica == self.replica:
            if kind == "beat" and boot == self.boot and rest and isinstance(rest[1], float):
                self._clock.echoed(rest[1])
            return
        member = self.members.get(replica)
        if kind == "bye":
            if member is not None and member.boot == boot:
                self._gone(member, "goodbye")
            return
        if member is None or member.boot != boot:
            member = self._meet(replica, boot, member)
        member.heard = time.monotonic()
        try:
            handle(member, replica, boot, kind, rest)
        except (ValueError, TypeError, IndexError):
            self.malformed += 1
            log.warning("malformed message of a member", replica=replica, kind=kind)

    def _meet(self, replica: str, boot: str, old: Member | None) -> Member:
        if old is not None:
            self._gone(old, "generation")
        member = Member(replica, boot, time.monotonic())
        self.members[replica] = member
        if self._left.get(replica) == boot:
            # It never died, we only could not see it: its calls of ours are over, and it must know.
            self._send_quietly(member, ["disowned"])
        self._ask_state(member)
        log.info("member joined", replica=replica)
        self.on_joined(member)
        return member

    def _ask_state(self, member: Member) -> None:
        now = time.monotonic()
        if now - member.asked_at >= self._clock.interval_s:
            member.asked_at = now
            self._send_quietly(member, ["state?"])

    def _from_channel(
        self, member: Member | None, replica: str, boot: str, kind: str, rest: list[Any]
    ) -> None:
        assert member is not None
        if kind == "beat":
            number, sent_at = rest
            member.compare_clocks(member.heard, sent_at)
            if number > member.applied >= 0:
                self._ask_state(member)  # a tell was lost
        elif kind == "tell":
            number, items = rest
            if member.applied >= 0 and number == member.applied + 1:
                member.applied = number
                self.on_tell(replica, items)
                self._acknowledge(replica)
            elif number > member.applied:
                self._ask_state(member)
        elif kind == "relinking":
            member.relinking = True
        elif kind == "hello":
            member.relinking = False
            # Its links were renewed: what was on its way to it may be lost.
            self.on_relinked(replica)
            self._send_quietly(member, self._state())
            self._ask_state(member)
        elif kind == "ask":
            ask_id, what, payload = rest
            self._send_quietly(member, ["answer", ask_id, self.answer(what, payload)])

    def _state(self) -> list[Any]:
        self._flush()
        return ["state", self._tells.number, self.snapshot()]

    def _from_inbox(self, member: Member | None, replica: str, boot: str, kind: str, rest: list[Any]) -> None:
        assert member is not None
        if kind == "msg":
            self.on_message(replica, rest[0])
        elif kind == "state?":
            self._send_quietly(member, self._state())
        elif kind == "state":
            number, items = rest
            member.applied = number
            self._inboxes.see([member])
            self.on_snapshot(replica, items)
            self._acknowledge(replica)
        elif kind == "applied":
            member.acked = max(member.acked, int(rest[0]))
            self._wake_tellers()
        elif kind == "answer":
            ask_id, answer = rest
            self._asks.answered(ask_id, replica, answer)
        elif kind == "disowned":
            self.on_disowned(replica)

    def _acknowledge(self, replica: str) -> None:
        self._pending_acks.add(replica)
        self._schedule_flush()
