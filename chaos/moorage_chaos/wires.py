"""How a load client speaks Socket.IO: our packet-level client, or python-socketio as anybody uses it.

One small interface over both, so that every row can be played by either. Nothing here records; :mod:`clients`
does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import socketio

from moorage_chaos import raw

Answer = Callable[..., None]
"""Sends the acknowledgement of a received event."""

OnEvent = Callable[[str, list[Any], Answer], None]
OnAck = Callable[[list[Any]], None]

SOCKETIO_PATH = "/v1/updates"
CONNECT_S = 5.0
"""Bound of one attempt to connect."""


class Wire(Protocol):
    """One client connection. ``on_event``, ``on_up`` and ``on_down`` are set by the user before
    :meth:`open`.
    """

    on_event: OnEvent
    on_up: Callable[[], None]
    """Each time a connection is up (again); ``hello`` is then new."""
    on_down: Callable[[str], None]
    """Each time it has ended, with what the client saw."""

    @property
    def hello(self) -> dict[str, Any]:
        """Payload of the server's CONNECT: ``{"sid", "replica", …}``."""

    async def open(self, url: str, auth: dict[str, Any]) -> None:
        """Connect once. Raises ConnectionError or TimeoutError."""

    def emit(self, event: str, payload: Any, on_ack: OnAck | None = None) -> None: ...

    async def close(self) -> None:
        """Leave in order."""

    def cut(self) -> None:
        """Drop the TCP connection without a word."""

    def freeze(self) -> None:
        """Stop reading while TCP stays up."""


class RawWire:
    """:mod:`moorage_chaos.raw`: no reconnection, handlers run inside the read."""

    def __init__(self) -> None:
        self.on_event: OnEvent = lambda event, args, answer: None
        self.on_up: Callable[[], None] = lambda: None
        self.on_down: Callable[[str], None] = lambda cause: None
        self.socket: raw.RawSocket | None = None
        self._connections = 0

    @property
    def hello(self) -> dict[str, Any]:
        return self.socket.hello if self.socket is not None else {}

    async def open(self, url: str, auth: dict[str, Any]) -> None:
        self._connections += 1
        connection = self._connections

        def on_close(cause: str) -> None:
            # The end of an older connection may be seen after the next one is up.
            if connection == self._connections:
                self.on_down(cause)

        self.socket = await raw.connect(
            url, auth, on_event=self._event, on_close=on_close, path=SOCKETIO_PATH, timeout=CONNECT_S
        )
        self.on_up()

    def _event(self, event: str, args: list[Any], ack_id: int | None) -> None:
        socket = self.socket

        def answer(*values: Any) -> None:
            if socket is not None and ack_id is not None:
                socket.answer(ack_id, *values)

        self.on_event(event, args, answer)

    def emit(self, event: str, payload: Any, on_ack: OnAck | None = None) -> None:
        if self.socket is not None:
            self.socket.emit(event, payload, ack=on_ack)

    async def close(self) -> None:
        if self.socket is not None:
            await self.socket.close()

    def cut(self) -> None:
        if self.socket is not None:
            self.socket.cut()

    def freeze(self) -> None:
        if self.socket is not None:
            self.socket.freeze()


class _Looking(socketio.AsyncClient):  # type: ignore[misc]
    """python-socketio's client, unchanged but for a look at the CONNECT payload, which it does not hand
    out.
    """

    hello: dict[str, Any]

    async def _handle_connect(self, namespace: str | None, data: dict[str, Any] | None) -> None:
        self.hello = data or {}
        await super()._handle_connect(namespace, data)


class PlainWire:
    """python-socketio's AsyncClient with its defaults: WebSocket first if told so, its own reconnection
    delays.
    """

    def __init__(self, *, reconnection: bool = True) -> None:
        self.on_event: OnEvent = lambda event, args, answer: None
        self.on_up: Callable[[], None] = lambda: None
        self.on_down: Callable[[str], None] = lambda cause: None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._client = _Looking(reconnection=reconnection, handle_sigint=False)
        self._client.hello = {}
        self._client.on("connect", self._up)
        self._client.on("disconnect", self._down)
        self._client.on("*", self._event)

    @property
    def hello(self) -> dict[str, Any]:
        return self._client.hello

    async def _up(self) -> None:
        self.on_up()

    async def _down(self, reason: str = "") -> None:
        self.on_down(reason or "transport")

    async def _event(self, event: str, *args: Any) -> Any:
        done: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()

        def answer(*values: Any) -> None:
            if not done.done():
                done.set_result(values)

        self.on_event(event, list(args), answer)
        if event != "rpc-request":
            return None
        return await done

    async def open(self, url: str, auth: dict[str, Any]) -> None:
        try:
            await self._client.connect(
                url, auth=auth, transports=["websocket"], socketio_path=SOCKETIO_PATH, wait_timeout=CONNECT_S
            )
        except socketio.exceptions.ConnectionError as error:
            raise ConnectionError(str(error)) from error

    def emit(self, event: str, payload: Any, on_ack: OnAck | None = None) -> None:
        callback = (lambda *args: on_ack(list(args))) if on_ack is not None else None
        self._start(self._emit(event, payload, callback))

    async def _emit(self, event: str, payload: Any, callback: Callable[..., None] | None) -> None:
        try:
            await self._client.emit(event, payload, callback=callback)
        except socketio.exceptions.SocketIOError:
            # Not connected: the caller learns it by on_down, or has already.
            return

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        async with asyncio.timeout(CONNECT_S):
            await self._client.shutdown()

    def cut(self) -> None:
        transport = self._transport()
        if transport is not None:
            transport.abort()

    def freeze(self) -> None:
        transport = self._transport()
        if transport is not None:
            transport.pause_reading()

    def _transport(self) -> Any:
        ws = getattr(self._client.eio, "ws", None)
        connection = getattr(ws, "_conn", None)
        return getattr(connection, "transport", None)
