"""What an application sees of a connection: its life, its state, events both ways."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Literal, Self

from moorage.client.errors import ConnectionLost, Unreachable
from moorage.client.keeper import Keeper, State
from moorage.client.listeners import Handler, Listeners
from moorage.client.signin import Token
from moorage.client.socket import Socket


class Connection(Keeper):
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
        scope = "machine" if machine_id is not None else "session" if session_id is not None else "user"
        optional = {"machineId": machine_id, "sessionId": session_id, "appState": app_state, "client": label}
        auth = {"clientType": f"{scope}-scoped"} | {k: v for k, v in optional.items() if v is not None}
        super().__init__(url, token, auth, path=path, open_timeout=open_timeout, recover=recover, tls=tls)
        self._loop_task: asyncio.Task[None] | None = None
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
            if (task := self._loop_task) is not None:
                await asyncio.wait([task])
                if not task.cancelled():
                    task.result()
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

    # -- hooks --------------------------------------------------------------------------------------------

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

    def _state_changed(self, state: State) -> None:
        for callback in self._on_state:
            self._listeners.call(callback, state)
