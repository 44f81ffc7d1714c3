"""A connection that comes back by itself and moves to another replica before its own one leaves."""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Callable
from typing import Any, Literal, Self

from moorage.client.errors import INVALID_TOKEN, ConnectionLost, Refused, Unreachable
from moorage.client.listeners import Handler, Listeners, Tasks
from moorage.client.signin import Token, TokenSource
from moorage.client.socket import Socket
from moorage.client.timing import Backoff, Signal

log = logging.getLogger("moorage.client")

State = Literal["connecting", "connected", "disconnected", "failed", "closed"]

HANDOVER_PAUSES_S = (0.25, 1.5, 3.0)
"""[s] Upper end of the pause before each of the three tries (PROTOCOL, Drain) to reach another replica: a
Service needs about a second to drop a replica that is not ready, and all clients of a replica start at the
same moment."""

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


class Connection:
    """Base of :class:`~moorage.client.Daemon` and :class:`~moorage.client.Caller`; useful alone for updates.

    ``url``: ``http(s)://host[:port]``. ``token``: a string, or a function (sync or async) that returns one;
    it is asked again once when the server says that the token is invalid. ``machine_id`` makes the
    connection machine-scoped, ``session_id`` session-scoped, neither user-scoped. ``app_state``: ``active``
    or ``background``. ``label`` is shown in the server's log. ``open_timeout`` [s] bounds one attempt.
    ``recover``: ask for what was missed while away (Socket.IO connection state recovery).

    Attempts go on for ever, except after a refusal that cannot pass (state ``failed``).
    """

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        machine_id: str | None = None,
        session_id: str | None = None,
        app_state: Literal["active", "background"] | None = None,
        label: str | None = None,
        path: str = "/v1/updates",
        open_timeout: float = 10.0,
        recover: bool = True,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if machine_id is not None and session_id is not None:
            raise ValueError("a connection is machine-scoped or session-scoped, not both")
        self.url = url
        scope = "machine" if machine_id is not None else "session" if session_id is not None else "user"
        auth = {"machineId": machine_id, "sessionId": session_id, "appState": app_state, "client": label}
        self._auth: dict[str, Any] = {"clientType": f"{scope}-scoped"}
        self._auth |= {key: value for key, value in auth.items() if value is not None}
        self._token = TokenSource(token, open_timeout)
        self._path = path
        self._open_timeout = open_timeout
        self._recover = recover
        self._tls = tls

        self.state: State = "closed"
        self.cause: Exception | None = None
        """Why there is no connection, as far as known."""
        self._socket: Socket | None = None
        self._newest: Socket | None = (
            None  # the one that registers, a moment before it becomes the one in use
        )
        self._sockets: set[Socket] = set()
        self._drain: tuple[Socket, float] | None = None
        self._changed = Signal()
        self._wake = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._tasks = Tasks()
        self._listeners = Listeners(self._tasks)
        self._on_state: list[Callable[[State], Any]] = []

    # -- what is shown ---------------------------------------------------------------------------------------

    @property
    def replica(self) -> str | None:
        """The replica we are connected to, as it names itself; None while there is none or it does not
        say."""
        return self._socket.replica if self._socket is not None and self._socket.alive else None

    @property
    def sid(self) -> str | None:
        """The client-visible ``socket.id`` of the connection in use."""
        return self._socket.sid_shown if self._socket is not None and self._socket.alive else None

    @property
    def recovered(self) -> bool:
        """The connection in use continues the one before: what was missed between them was delivered."""
        return self._socket is not None and self._socket.recovered

    def on_state(self, callback: Callable[[State], Any]) -> Callable[[State], Any]:
        """Call ``callback(state)`` at every change. Usable as a decorator."""
        self._on_state.append(callback)
        return callback

    def on(self, event: str, handler: Handler | None = None) -> Any:
        """Call ``handler(payload)``, sync or async, for each such event from the server. Usable as a
        decorator.

        Each ``update`` comes once, by its ``id``, also over a handover or a recovery.
        """
        if handler is None:
            return lambda function: self.on(event, function)
        self._listeners.add(event, handler)
        return handler

    async def connected(self, timeout: float = 30.0) -> None:
        """Return once connected.

        Raises :class:`Refused` if the server refused for good, :class:`Unreachable` after ``timeout`` seconds
        (with the last cause) or if the connection is closed.
        """
        try:
            await self._changed.until(self._usable, timeout)
        except TimeoutError:
            raise Unreachable(
                f"not connected within {timeout:g} s: {self.cause or 'no answer yet'}"
            ) from None

    def _usable(self) -> bool:
        if self.state == "failed" and self.cause is not None:
            raise self.cause
        if self.state == "closed":
            raise Unreachable("the connection is closed")
        return self._socket is not None and self._socket.alive

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to connect, in the background. A second start changes nothing."""
        if self._loop_task is None or self._loop_task.done():
            self.cause = None
            self._set_state("connecting")
            self._loop_task = asyncio.create_task(self._keep())

    async def stop(self, grace: float = 5.0) -> None:
        """Let work in flight end for at most ``grace`` seconds, say goodbye, close. May be started again."""
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.wait([self._loop_task])
            self._loop_task = None
        if grace > 0:
            await self._finish(grace)
        self._socket = None
        self._set_state("closed")
        await asyncio.gather(*(socket.close() for socket in list(self._sockets)))
        await self._tasks.cancel(1.0)

    async def run(self) -> None:
        """Start and stay until stopped. Raises :class:`Refused` if the server refuses for good."""
        await self.start()
        try:
            if self._loop_task is not None:
                await asyncio.wait([self._loop_task])
            if self.state == "failed" and self.cause is not None:
                raise self.cause
        finally:
            await self.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        try:
            await self._entered()
        except BaseException:
            await self.stop(grace=0)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def _entered(self) -> None:
        await self.connected()

    # -- sending ---------------------------------------------------------------------------------------------

    def emit(self, event: str, payload: Any = None) -> bool:
        """Send an event (``session-alive``, ``session-end``, …); False if there is no connection just now."""
        return self._socket is not None and self._socket.write(event, payload)

    async def request(self, event: str, payload: Any = None, *, timeout: float = 10.0) -> Any:
        """Send an event and return its ack (``message``, ``reply``, ``subscribe``, …).

        Raises :class:`ConnectionLost` if there is no connection or it is lost before the answer,
        ``TimeoutError`` after ``timeout`` seconds."""
        if self._socket is None:
            raise ConnectionLost("not connected", delivered="no")
        async with asyncio.timeout(timeout):
            answer = await self._socket.ask(event, payload)
        return answer[0] if answer else None

    def set_app_state(self, state: Literal["active", "background"]) -> None:
        """Report ``app-state``, now and at every reconnect."""
        self._auth["appState"] = state
        self.emit("app-state", {"state": state})

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

    async def _finish(self, grace: float) -> None:
        """Let work in flight end before a stop."""

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
            last = self._socket
            if resume and last is not None and last.pid is not None and last.offset is not None:
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

        After three tries that led back to the same replica we stay, and are cut with it.
        """
        for most in HANDOVER_PAUSES_S:
            await asyncio.sleep(random.uniform(0, min(most, max(0.0, deadline - time.monotonic()) / 2)))
            try:
                socket = await self._open(resume=not old.alive and self._recover)
            except (Refused, Unreachable) as error:
                log.info("cannot leave %s yet: %s", old.replica, error)
                if not old.alive:
                    return
                continue
            if socket.replica is not None and socket.replica == old.replica and old.alive:
                await socket.close()
                continue
            self._commit(socket)
            try:
                async with asyncio.timeout(PREPARE_S):
                    await self._prepare(socket)
            except TimeoutError:
                log.warning(
                    "not everything is registered on %s; leaving %s anyway", socket.replica, old.replica
                )
            self._use(socket)
            self._tasks.spawn(self._retire(old, deadline + DEADLINE_SLACK_S))
            return

    async def _retire(self, old: Socket, deadline: float) -> None:
        while old.alive and (left := deadline - time.monotonic()) > 0:
            old.activity.clear()
            try:
                async with asyncio.timeout(left if old.in_flight else min(LINGER_S, left)):
                    await old.activity.wait()
            except TimeoutError:
                break
        await old.close()

    # -- from the sockets ------------------------------------------------------------------------------------

    def _event(self, socket: Socket, event: str, args: list[Any], number: int | None) -> None:
        payload = args[0] if args else None
        if self._received(socket, event, payload, number):
            return
        if number is not None:
            socket.answer(number)
        if event == "server-draining":
            self._draining(socket, payload)
        current = self._socket
        if event == "ephemeral" and current is not None and current.alive and socket is not current:
            return  # the connection in use brings it too
        self._listeners.tell(event, payload)

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
        self._wake.set()

    def _set_state(self, state: State) -> None:
        changed, self.state = state != self.state, state
        if changed:
            for callback in self._on_state:
                self._listeners.call(callback, state)
        self._changed.fire()
