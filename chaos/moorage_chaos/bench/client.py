"""The load client's two connections, made by hand to be cheap: Socket.IO over picows, HTTP/1.1 with keep-alive.

Both are callback-driven, without a task or a future per message, so that the client is not what is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import orjson
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

CONNECT_S = 10.0
"""[s] Bound of a handshake, HTTP upgrade and Socket.IO CONNECT together; a busy machine needs tens of ms."""


class BenchError(Exception):
    """The bench cannot go on; the text says what was seen and where."""


def _nothing(_data: bytes) -> None:
    return None


class SocketClient(WSListener):  # type: ignore[misc]  # picows is a compiled module without base types
    """One Socket.IO client in the namespace ``/``. Build with :func:`connect`."""

    def __init__(self, auth: dict[str, Any]) -> None:
        self._auth = auth
        self._transport: WSTransport = None
        self.ready: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.on_event: Callable[[bytes], None] = _nothing
        """Called with a whole ``42…`` packet."""
        self.on_ack: Callable[[bytes], None] = _nothing
        """Called with a whole ``43…`` packet."""
        self.lost = False

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type != WSMsgType.TEXT:
            return
        data = frame.get_payload_as_bytes()
        kind = data[:2]
        if kind == b"42":
            self.on_event(data)
        elif kind == b"43":
            self.on_ack(data)
        elif kind == b"2":
            self.send(b"3")
        elif kind[:1] == b"0":
            self.send(b"40" + orjson.dumps(self._auth))
        elif kind == b"40" and not self.ready.done():
            self.ready.set_result(orjson.loads(data[2:] or b"{}"))
        elif kind == b"44" and not self.ready.done():
            self.ready.set_exception(BenchError(f"the server refused the connection: {data[2:300]!r}"))

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.lost = True
        if not self.ready.done():
            self.ready.set_exception(BenchError("the server closed the connection during the handshake"))

    def send(self, packet: bytes) -> None:
        """Write one Engine.IO text packet now."""
        self._transport.send(WSMsgType.TEXT, packet)

    def close(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.disconnect(False)


async def connect(
    port: int, path: str, auth: dict[str, Any], on_event: Callable[[bytes], None] = _nothing
) -> tuple[SocketClient, dict[str, Any]]:
    """A connected client and the payload of its CONNECT packet (``sid``, ours also ``replica``).

    ``on_event`` is its from the first packet on, which may come before CONNECT.

    Raises :class:`BenchError` when the server refuses, closes or is silent for ``CONNECT_S``.
    """
    client = SocketClient(auth)
    client.on_event = on_event
    url = f"ws://127.0.0.1:{port}{path}/?EIO=4&transport=websocket"
    try:
        async with asyncio.timeout(CONNECT_S):
            await ws_connect(lambda: client, url)
            return client, await client.ready
    except TimeoutError:
        raise BenchError(f"no Socket.IO connection to port {port} within {CONNECT_S:g} s") from None


class HttpConnection(asyncio.Protocol):
    """A keep-alive connection that carries one request at a time; knows answers with ``Content-Length`` only."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._done: Callable[[int, bytes], None] | None = None

    @property
    def standing(self) -> bool:
        """Neither side has closed it."""
        return self._transport is not None

    @property
    def idle(self) -> bool:
        """No answer is awaited and the connection stands."""
        return self._done is None and self.standing

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._finish(0, b"connection lost")

    def request(self, data: bytes, done: Callable[[int, bytes], None]) -> None:
        """Write a whole request; ``done(status, body)`` once, status 0 when the connection was lost."""
        if self._transport is None:
            done(0, b"connection lost")
            return
        self._done = done
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, gap, rest = self._buffer.partition(b"\r\n\r\n")
        if not gap:
            return
        length = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        self._finish(int(head[9:12]), rest[:length])

    def _finish(self, status: int, body: bytes) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(status, body)

    def close(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.close()


async def open_http(port: int) -> HttpConnection:
    """Raises :class:`OSError` when nobody listens, :class:`TimeoutError` after ``CONNECT_S``."""
    async with asyncio.timeout(CONNECT_S):
        _, protocol = await asyncio.get_running_loop().create_connection(HttpConnection, "127.0.0.1", port)
    return protocol


async def ask(link: HttpConnection, request: bytes, timeout: float = 5.0) -> tuple[int, bytes]:
    """One request and its answer; status 0 when the connection was lost or ``timeout`` [s] passed."""
    answered: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def done(status: int, body: bytes) -> None:
        if not answered.done():
            answered.set_result((status, body))

    link.request(request, done)
    try:
        async with asyncio.timeout(timeout):
            return await answered
    except TimeoutError:
        return 0, b"no answer"


def http_request(method: str, target: str, token: str | None = None, body: bytes = b"") -> bytes:
    """The bytes of one HTTP/1.1 request to this machine."""
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1"]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
