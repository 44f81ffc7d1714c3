"""The smallest Socket.IO client that can be driven to the packet: one WebSocket, one namespace, no waiting
inside.

Engine.IO protocol 4 and Socket.IO protocol 5 as text frames. For exact timing, for a thousand idle
connections in one process, and for packets that no honest library would send (:meth:`RawSocket.send_text`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

OPEN_TIMEOUT_S = 5.0
"""Bound of TCP connect, upgrade, and the server's CONNECT answer, each."""

CLOSE_TIMEOUT_S = 1.0

Ack = Callable[[list[Any]], None]


class ConnectRefused(ConnectionError):
    """The server answered with CONNECT_ERROR; ``str`` is its message."""


class RawSocket(WSListener):  # type: ignore[misc]
    """One connection; use :func:`connect`. All sending is synchronous and never waits.

    ``on_event(name, args, ack_id)`` gets every event, ``on_close(cause)`` the end of the transport, once.
    ``hello`` is the payload of the server's CONNECT packet (``{"sid", "replica", "pid"?}``).
    """

    def __init__(
        self,
        auth: dict[str, Any],
        on_event: Callable[[str, list[Any], int | None], None] | None = None,
        on_close: Callable[[str], None] | None = None,
    ) -> None:
        self._auth = auth
        self.on_event = on_event
        self.on_close = on_close
        self.hello: dict[str, Any] = {}
        self.open: dict[str, Any] = {}
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False
        self.close_cause = ""
        self._transport: Any = None
        self._acks: dict[int, Ack] = {}
        self._next_ack = 0
        self._parts: list[bytes] = []

    # -- what picows calls ---------------------------------------------------------------------------------
    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            self.close_cause = self.close_cause or f"close {int(frame.get_close_code())}"
            transport.disconnect()
        elif frame.msg_type in (WSMsgType.TEXT, WSMsgType.CONTINUATION):
            self._parts.append(frame.get_payload_as_bytes())
            if frame.fin:
                packet = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts.clear()
                self._packet(packet)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.closed = True
        cause = self.close_cause or "transport"
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(f"closed before the handshake ended: {cause}"))
        self._acks.clear()
        if self.on_close is not None:
            self.on_close(cause)

    # -- packets -------------------------------------------------------------------------------------------
    def _packet(self, packet: bytes) -> None:
        kind = packet[:2]
        if kind == b"42":
            ack_id, body = _split(packet)
            if self.on_event is not None:
                args = orjson.loads(body)
                self.on_event(args[0], args[1:], ack_id)
        elif kind == b"43":
            ack_id, body = _split(packet)
            ack = self._acks.pop(ack_id, None) if ack_id is not None else None
            if ack is not None:
                ack(orjson.loads(body))
        elif packet == b"2":
            self.send_text(b"3")
        elif packet[:1] == b"0":
            self.open = orjson.loads(packet[1:])
            self.send_text(b"40" + orjson.dumps(self._auth))
        elif kind == b"40":
            self.hello = orjson.loads(packet[2:] or b"{}")
            if not self.ready.done():
                self.ready.set_result(None)
        elif kind == b"44":
            self.close_cause = "refused"
            if not self.ready.done():
                self.ready.set_exception(ConnectRefused(orjson.loads(packet[2:] or b"{}").get("message", "")))
        elif kind == b"41":
            self.close_cause = "server disconnect"
            self._transport.disconnect()

    def send_text(self, packet: bytes) -> None:
        """Write one WebSocket text frame as it is; nothing happens on a closed connection."""
        if not self.closed and self._transport is not None:
            self._transport.send(WSMsgType.TEXT, packet)

    def emit(self, event: str, *args: Any, ack: Ack | None = None) -> None:
        """Send an event; ``ack`` is called with the arguments of the server's acknowledgement, if it
        comes.
        """
        head = b"42"
        if ack is not None:
            self._next_ack += 1
            self._acks[self._next_ack] = ack
            head += str(self._next_ack).encode()
        self.send_text(head + orjson.dumps([event, *args]))

    def answer(self, ack_id: int, *args: Any) -> None:
        """Acknowledge a received event."""
        self.send_text(b"43" + str(ack_id).encode() + orjson.dumps(list(args)))

    # -- ends ----------------------------------------------------------------------------------------------
    async def close(self, timeout: float = CLOSE_TIMEOUT_S) -> None:
        """Leave as an honest client does: DISCONNECT, Engine.IO CLOSE, WebSocket close; then wait for the
        server's end.

        Over ``timeout`` seconds the TCP connection is dropped.
        """
        self.close_cause = self.close_cause or "close"
        if self.closed or self._transport is None:
            return
        self.send_text(b"41")
        self.send_text(b"1")
        self._transport.send_close()
        try:
            async with asyncio.timeout(timeout):
                await self._transport.wait_disconnected()
        except (TimeoutError, OSError):
            self.cut()

    def cut(self) -> None:
        """Drop the TCP connection without a word (the peer gets a reset or FIN, no close frame)."""
        self.close_cause = self.close_cause or "cut"
        if not self.closed and self._transport is not None:
            self._transport.disconnect(False)

    def freeze(self) -> None:
        """Stop reading for good: no pong, no ack, while TCP stays up (a half-open or never-reading
        client).
        """
        if not self.closed and self._transport is not None:
            self._transport.underlying_transport.pause_reading()


def _split(packet: bytes) -> tuple[int | None, bytes]:
    """Ack id and JSON of an EVENT or ACK packet."""
    end = 2
    while packet[end : end + 1].isdigit():
        end += 1
    return (int(packet[2:end]) if end > 2 else None), packet[end:]


async def connect(
    url: str,
    auth: dict[str, Any],
    *,
    on_event: Callable[[str, list[Any], int | None], None] | None = None,
    on_close: Callable[[str], None] | None = None,
    path: str = "/v1/updates",
    timeout: float = OPEN_TIMEOUT_S,
) -> RawSocket:
    """Connect to ``url`` (``http://host:port``) and wait for the server's CONNECT.

    Raises :class:`ConnectRefused` on CONNECT_ERROR, ConnectionError or TimeoutError on anything else.
    """
    target = url.replace("http", "ws", 1).rstrip("/") + f"{path}/?EIO=4&transport=websocket"
    socket: RawSocket | None = None
    try:
        async with asyncio.timeout(timeout):
            _, socket = await ws_connect(
                lambda: RawSocket(auth, on_event, on_close),
                target,
                websocket_handshake_timeout=timeout,
                max_frame_size=128 * 1024 * 1024,
            )
            await socket.ready
    except BaseException as error:
        if socket is not None:
            socket.on_close = None
            if socket.ready.done() and not socket.ready.cancelled():
                socket.ready.exception()
            socket.cut()
        if isinstance(error, (OSError, TimeoutError, asyncio.CancelledError)):
            raise
        raise ConnectionError(f"{type(error).__name__}: {error}") from error
    return socket
