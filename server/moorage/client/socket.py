"""One Socket.IO connection, from its handshake to its end: python-socketio's client without its policies.

What python-socketio's own client does not do and this needs: show the payload of the CONNECT packet, tell
of every end (also one during the handshake), send what was written before a disconnect, and answer an event
later."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import ssl
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import engineio
import socketio
from engineio import packet as eio_packet
from socketio import packet as sio_packet

from moorage.client.errors import FATAL_REFUSALS, ConnectionLost, Refused, Unreachable

WIRE_LOG = logging.getLogger("moorage.client.wire")
if WIRE_LOG.level == logging.NOTSET:
    # The libraries log every packet at INFO and every lost connection at WARNING; set this logger's level
    # to see it.
    WIRE_LOG.setLevel(logging.ERROR)

OFFSET = re.compile(r"[0-9]{1,20}-[0-9]{1,20}", re.ASCII)
"""Id of an entry of the server's stream."""

CONNECT_S = 3.0
"""[s] Bound of the TCP connection alone. Right after pods are lost, a Service may still send a new connection to an
address that is gone: nobody answers, and each repeated SYN goes to the same address. Only another connection helps."""

CLOSE_S = 1.0
"""[s] How long a close waits for what was written to go out, and then for the peer's close frame."""

EventHandler = Callable[["Socket", str, list[Any], "int | None"], None]
CloseHandler = Callable[["Socket", str], None]


class Socket(socketio.AsyncClient):  # type: ignore[misc]  # python-socketio has no types
    """``on_event(socket, event, args, ack id or None)``; ``on_closed(socket, reason)`` once, if it had
    opened."""

    # Shared, since the answer to a question of a lost connection may come on the one that recovers it.
    _ids = itertools.count(1)

    def __init__(
        self, on_event: EventHandler, on_closed: CloseHandler, tls: ssl.SSLContext | None = None
    ) -> None:
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_S))
        super().__init__(
            reconnection=False,
            handle_sigint=False,
            logger=WIRE_LOG,
            engineio_logger=WIRE_LOG,
            http_session=self._http,
            request_timeout=CLOSE_S,
            websocket_extra_options={"ssl": tls} if tls is not None else {},
        )
        self._on_event = on_event
        self._on_closed = on_closed
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[int, asyncio.Future[list[Any]]] = {}
        self._owed: set[int] = set()
        self._auth: dict[str, Any] = {}
        self.sid_shown: str | None = None
        self.replica: str | None = None
        self.pid: str | None = None
        self.offset: str | None = None
        self.recovered = False
        self.answers_ping = False
        self.alive = False
        self.closing = False
        self.heard = time.monotonic()
        self.activity = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Acks we wait for and acks we owe."""
        return len(self._waiting) + len(self._owed)

    async def open(self, url: str, path: str, auth: dict[str, Any], timeout: float) -> None:
        """Connect. From the CONNECT payload come ``sid_shown``, ``replica`` and, for recovery, ``pid``.

        The token of ``auth`` is shown in the header of the handshake, too, where proxies can see it.
        Raises :class:`Refused` (no use to try again) or :class:`Unreachable`; the socket is then closed.
        """
        self._auth = auth
        shown = {"Authorization": f"Bearer {auth['token'].strip()}"}
        try:
            async with asyncio.timeout(timeout):
                await self.connect(
                    url, headers=shown, auth=auth, transports=["websocket"], socketio_path=path, wait=False
                )
                await self._opened
        except TimeoutError:
            await self.close(goodbye=False)
            raise Unreachable(f"no answer within {timeout:g} s") from None
        except (socketio.exceptions.SocketIOError, engineio.exceptions.EngineIOError) as error:
            await self.close(goodbye=False)
            raise Unreachable(str(error)) from error
        except (OSError, aiohttp.ClientError, ValueError, TypeError, KeyError, AttributeError) as error:
            # The libraries read the handshake of a server that speaks something else without checking its
            # shape.
            await self.close(goodbye=False)
            raise Unreachable(f"{type(error).__name__}: {error}") from error
        except BaseException:
            await self.close(goodbye=False)
            raise

    def write(self, event: str, *args: Any) -> bool:
        """Send an event; False if the connection is gone. Raises TypeError/ValueError for what JSON cannot
        say."""
        return self._put(self.packet_class(sio_packet.EVENT, namespace="/", data=[event, *args]))

    def ask(self, event: str, *args: Any) -> asyncio.Future[list[Any]]:
        """Send an event; the future gives the ack's arguments, or raises :class:`ConnectionLost`."""
        number = next(self._ids)
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        packet = self.packet_class(sio_packet.EVENT, namespace="/", data=[event, *args], id=number)
        if not self._put(packet):
            future.set_exception(ConnectionLost(delivered="no"))
            return future
        self._waiting[number] = future
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        return future

    def answer(self, number: int, *args: Any) -> bool:
        """Send the ack of an event that asked for one. Raises TypeError/ValueError for what JSON cannot
        say."""
        sent = self._put(self.packet_class(sio_packet.ACK, namespace="/", data=list(args), id=number))
        self.forget(number)
        return sent

    def forget(self, number: int) -> None:
        """This ack will not be sent."""
        self._owed.discard(number)
        self.activity.set()

    async def close(self, *, goodbye: bool = True) -> None:
        """End the connection; bounded. With ``goodbye`` the server learns that it is deliberate."""
        if self.closing:
            return
        self.closing = True
        try:
            if self.eio.state == "connected":
                if goodbye and self.alive:
                    self._put(self.packet_class(sio_packet.DISCONNECT, namespace="/"))
                    # Engine.IO's own disconnect() closes the WebSocket before it has written its queue.
                    await self._bounded(self.eio.queue.join())
                await self._bounded(self.eio.disconnect())
        finally:
            self._ended("client disconnect")
            await self._http.close()

    def give_up(self, reason: str) -> None:
        """Count as lost from now on; whoever calls this closes it."""
        self._ended(reason)

    def _put(self, packet: Any) -> bool:
        if self.eio.state != "connected":
            return False
        encoded = packet.encode()
        for part in encoded if isinstance(encoded, list) else [encoded]:
            self.eio.queue.put_nowait(eio_packet.Packet(eio_packet.MESSAGE, data=part))
        return True

    async def _bounded(self, work: Any) -> None:
        try:
            async with asyncio.timeout(2 * CLOSE_S):
                await work
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            WIRE_LOG.info("close: %r", error)

    def _ended(self, reason: str) -> None:
        was_open, self.alive = self.alive, False
        if not self._opened.done():
            self._opened.set_exception(Unreachable(reason))
            self._opened.exception()
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(ConnectionLost(reason))
        self._owed.clear()
        self.activity.set()
        if was_open:
            self._on_closed(self, reason)

    # -- python-socketio's hooks ---------------------------------------------------------------------------

    async def _handle_eio_message(self, data: Any) -> None:
        self.heard = time.monotonic()
        try:
            await super()._handle_eio_message(data)
        except Exception as error:
            WIRE_LOG.error("ignored a message that cannot be read: %r", error)

    async def _handle_connect(self, namespace: str | None, data: Any) -> None:
        payload = {k: v for k, v in data.items() if isinstance(v, str)} if isinstance(data, dict) else {}
        self.sid_shown, self.replica, self.pid = (
            payload.get("sid"),
            payload.get("replica"),
            payload.get("pid"),
        )
        if self.pid is not None and self.pid == self._auth.get("pid"):
            self.recovered, self.offset = True, self._auth.get("offset")
        await super()._handle_connect(namespace, payload)
        if not self._opened.done():
            self.alive = True
            self._opened.set_result(None)

    async def _handle_error(self, namespace: str | None, data: Any) -> None:
        message = data.get("message") if isinstance(data, dict) else data
        text = message if isinstance(message, str) else "connection refused"
        if not self._opened.done():
            self._opened.set_exception(Refused(text) if text in FATAL_REFUSALS else Unreachable(text))

    async def _handle_event(self, namespace: str | None, id: int | None, data: list[Any]) -> None:
        if not isinstance(data, list) or not data or not isinstance(data[0], str):
            return
        if id is not None:
            self._owed.add(id)
            self.activity.set()
        last = data[-1] if len(data) > 1 else None
        if self.pid is not None and isinstance(last, str) and OFFSET.fullmatch(last):
            self.offset = data.pop()  # appended by the server to whatever can be missed, and behind any text
        self._on_event(self, data[0], data[1:], id)

    async def _handle_ack(self, namespace: str | None, id: int | None, data: Any) -> None:
        future = self._waiting.get(id) if id is not None else None
        if future is not None and not future.done():
            future.set_result(data if isinstance(data, list) else [data])
            self.activity.set()

    async def _handle_disconnect(self, namespace: str | None) -> None:
        self._ended("server disconnect")
        await self.close(goodbye=False)

    async def _handle_eio_disconnect(self, reason: str) -> None:
        self._ended(reason)
        if not self.closing:
            self.closing = True
            await self._http.close()
