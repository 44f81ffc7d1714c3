"""Keeps one usable connection: opens it, replaces a lost or silent one, leaves a draining replica in time."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from typing import Any, Literal

from moorage.client.errors import INVALID_TOKEN, ConnectionLost, Refused, Unreachable
from moorage.client.listeners import Tasks
from moorage.client.signin import Token, TokenSource
from moorage.client.socket import Socket
from moorage.client.timing import Backoff, Signal

log = logging.getLogger("moorage.client")

State = Literal["connecting", "connected", "disconnected", "failed", "closed"]

HANDOVER_PAUSES_S = (1.0, 1.0, 2.0)
"""[s] Upper end of the pause before each of the three tries (PROTOCOL, Drain) to reach another replica: a
Service needs about a second to drop one that is not ready, and all clients of a replica start at the same
moment. The first two fit into the 2 s in which a draining server closes nobody."""

LINGER_S = 1.0
"""[s] How long an old connection without work stays: a request that was sent before all knew the new one
may come."""

DRAIN_S = 20.0
"""[s] Time to leave when the server does not say (PROTOCOL: DRAIN_MS 20000)."""

DEADLINE_SLACK_S = 1.0
"""[s] Stay this much after the drain's deadline: what still runs then gets its typed end from the server."""

PREPARE_S = 3.0
"""[s] Bound of registering on the new connection; the server itself promises 1.5 s (PROTOCOL,
rpc-register)."""

STABLE_S = 1.0
"""[s] A connection that held this long makes the next pause the shortest again."""

PROBE_S = 5.0
"""[s] After so much silence a `ping` is sent; two in a row without an answer within as much: the connection
is dead. Engine.IO alone would notice after 60 s (pingInterval + pingTimeout)."""


class Keeper:
    """The loop under :class:`~moorage.client.Connection`, which documents the arguments."""

    def __init__(
        self,
        url: str,
        token: Token,
        auth: dict[str, Any],
        *,
        path: str,
        open_timeout: float,
        recover: bool,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.url = url
        self.state: State = "closed"
        self.cause: Exception | None = None
        """Why there is no connection, as far as known."""
        self._auth = auth
        self._token = TokenSource(token, open_timeout)
        self._path = path
        self._open_timeout = open_timeout
        self._recover = recover
        self._tls = tls
        self._socket: Socket | None = None
        self._newest: Socket | None = None
        """The one that registers: the one in use, or a moment before it becomes that."""
        self._sockets: set[Socket] = set()
        self._drain: tuple[Socket, float] | None = None
        self._changed = Signal()
        self._wake = asyncio.Event()
        self._tasks = Tasks()

    # -- for subclasses --------------------------------------------------------------------------------------

    def _opened(self, socket: Socket) -> None:
        """``socket`` is open and will be the one in use."""

    async def _prepare(self, socket: Socket) -> None:
        """Before ``socket`` replaces a connection that still works. Bounded by ``PREPARE_S``."""

    def _received(self, socket: Socket, event: str, payload: Any, number: int | None) -> bool:
        """True if the event is dealt with, its ack included."""
        return False

    def _lost(self, socket: Socket) -> None:
        """``socket`` is gone."""

    def _event(self, socket: Socket, event: str, args: list[Any], number: int | None) -> None:
        """An event came; ``number`` is the ack it wants."""

    def _state_changed(self, state: State) -> None:
        """The state is another one now."""

    async def _finish(self, grace: float) -> None:
        """Let work in flight end before a stop."""

    def _usable(self) -> bool:
        if self.state == "failed" and self.cause is not None:
            raise self.cause
        if self.state == "closed":
            raise Unreachable("the connection is closed")
        return self._socket is not None and self._socket.alive

    # -- the loop --------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            self._set_state("connecting")
            try:
                socket = await self._open(resume=self._recover)
            except Refused as refused:
                self.cause = refused
                self._set_state("failed")
                return
            except Unreachable as error:
                self.cause = error
                log.info("cannot connect to %s: %s", self.url, error)
            else:
                since = time.monotonic()
                self._commit(socket)
                self._use(socket)
                await self._stay()
                if time.monotonic() - since >= STABLE_S:
                    backoff.reset()
            self._set_state("disconnected")
            await asyncio.sleep(backoff.next())

    async def _open(self, *, resume: bool) -> Socket:
        """One attempt; a second one at once if a token that can be renewed was refused."""
        renewed = False
        while True:
            auth = {**self._auth, "token": await self._token.get()}
            if self._recover:
                # Both keys, be they null, say that offsets behind the arguments of events are understood.
                auth |= {"pid": None, "offset": None}
                last = self._socket
                if resume and last is not None and last.pid is not None:
                    auth |= {"pid": last.pid, "offset": last.offset}
            socket = Socket(self._event, self._closed, self._tls)
            try:
                await socket.open(self.url, self._path, auth, self._open_timeout)
            except Refused as refused:
                if renewed or refused.message != INVALID_TOKEN or not self._token.renew():
                    raise
                renewed = True
                continue
            if not socket.alive:
                raise Unreachable("closed at once")
            self._sockets.add(socket)
            return socket

    def _commit(self, socket: Socket) -> None:
        self._newest = socket
        self._opened(socket)

    def _use(self, socket: Socket) -> None:
        self.cause = None
        self._socket = socket
        self._set_state("connected")

    async def _stay(self) -> None:
        """Until the connection in use is lost."""
        silent = 0
        while (socket := self._socket) is not None and socket.alive:
            self._wake.clear()
            if self._drain is not None and self._drain[0] is socket:
                deadline, self._drain = self._drain[1], None
                await self._hand_over(socket, deadline)
                continue
            try:
                async with asyncio.timeout(PROBE_S):
                    await self._wake.wait()
            except TimeoutError:
                silent = 0 if await self._answers(socket) else silent + 1
            # Two, since the first may have run out while our own loop stood still. A server that never
            # answered a ping is no Moorage and is left to Engine.IO's own timeout.
            if silent > 1 and socket.answers_ping:
                log.warning("%s does not answer any more: connecting anew", socket.replica or self.url)
                socket.give_up("no answer to ping")
                self._tasks.spawn(socket.close(goodbye=False))

    async def _answers(self, socket: Socket) -> bool:
        if time.monotonic() - socket.heard < PROBE_S:
            return True
        try:
            async with asyncio.timeout(PROBE_S):
                await socket.ask("ping")
        except (TimeoutError, ConnectionLost):
            return False
        socket.answers_ping = True
        return True

    # -- drain -----------------------------------------------------------------------------------------------

    async def _hand_over(self, old: Socket, deadline: float) -> None:
        """Open a connection to another replica first; then let the old one finish what it carries.

        After three tries that led back to the same replica, or nowhere, we stay and are cut with it.
        """
        for most in HANDOVER_PAUSES_S:
            pause = random.uniform(0, min(most, max(0.0, deadline - time.monotonic()) / 2))
            if await self._dies(old, pause):
                return
            try:
                socket = await self._open(resume=False)
            except (Refused, Unreachable) as error:
                log.info("cannot leave %s yet: %s", old.replica, error)
                continue
            if socket.replica is not None and socket.replica == old.replica and old.alive:
                await socket.close()
            elif await self._replace(old, socket):
                self._tasks.spawn(self._retire(old, deadline + DEADLINE_SLACK_S))
                return

    async def _dies(self, socket: Socket, within: float) -> bool:
        try:
            await self._changed.until(lambda: not socket.alive, within)
        except TimeoutError:
            return False
        return True

    async def _replace(self, old: Socket, socket: Socket) -> bool:
        """False: the new connection did not live long enough."""
        self._commit(socket)
        try:
            async with asyncio.timeout(PREPARE_S):
                await self._prepare(socket)
        except TimeoutError:
            log.warning("not all is registered on %s yet; leaving %s anyway", socket.replica, old.replica)
        if socket.alive:
            self._use(socket)
        elif old.alive:
            self._commit(old)  # what the new one registered was taken from it
        return socket.alive

    async def _retire(self, old: Socket, deadline: float) -> None:
        while old.alive and (left := deadline - time.monotonic()) > 0:
            old.activity.clear()
            try:
                async with asyncio.timeout(left if old.in_flight else min(LINGER_S, left)):
                    await old.activity.wait()
            except TimeoutError:
                break
        await old.close()

    # -- from the sockets ---------------------------------------------------------------------------------

    def _draining(self, socket: Socket, payload: Any) -> None:
        at = payload.get("deadlineMs") if isinstance(payload, dict) else None
        left = DRAIN_S
        if isinstance(at, (int, float)) and not isinstance(at, bool):
            left = at / 1000 - time.time()
        self._drain = (socket, time.monotonic() + max(0.0, left))
        self._wake.set()

    def _closed(self, socket: Socket, reason: str) -> None:
        self._sockets.discard(socket)
        self._lost(socket)
        if socket is self._socket and self.state == "connected":
            self.cause = Unreachable(reason)
            self._set_state("disconnected")
        self._changed.fire()
        self._wake.set()

    def _set_state(self, state: State) -> None:
        changed, self.state = state != self.state, state
        if changed:
            self._state_changed(state)
        self._changed.fire()
