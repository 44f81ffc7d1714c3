"""A client's transport, whichever it is: what is known of the client, heartbeat, closing once.

A socket here has no task and no timer. What it receives goes straight to the :class:`Sink`, and what is pushed to it
is written (WebSocket) or queued for the next poll (long polling), always within a bound.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from engineio.async_socket import AsyncSocket
from engineio.packet import PING
from engineio.packet import Packet as EngineIOPacket

from moorage.cluster.packets import Encoded, Packet

if TYPE_CHECKING:
    from moorage.sockets.engine import Engine

BEHIND_BYTES = 65_536
"""A socket with more than this unsent is "behind": volatile events leave it out (Node asks "writable")."""

TRANSPORT_CLOSE = "transport close"
TRANSPORT_ERROR = "transport error"
PING_TIMEOUT = "ping timeout"
CLIENT_DISCONNECT = "client disconnect"
SERVER_DISCONNECT = "server disconnect"
SHUTTING_DOWN = "server shutting down"


@dataclass(slots=True)
class Peer:
    """What is known of one client, whichever transport it uses now."""

    eio_sid: str
    partial: Packet | None = None  # a binary packet that waits for its attachments
    attachments: list[bytes] = field(default_factory=list)
    attached_bytes: int = 0
    connecting: bool = False  # a connect handler runs; what comes meanwhile waits in `backlog`
    backlog: list[Packet] = field(default_factory=list)
    join_timer: asyncio.TimerHandle | None = None
    closed: str | None = None  # the reason, once the transport is gone


class Sink(Protocol):
    """Where clients' messages go. Nothing here may raise."""

    def opened(self, eio_sid: str, environ: dict[str, Any]) -> Peer: ...
    def text(self, peer: Peer, raw: bytes, offset: int) -> None: ...
    def binary(self, peer: Peer, data: bytes) -> None: ...
    def heard(self, peer: Peer) -> None: ...
    def closed(self, peer: Peer, reason: str) -> None: ...
    def overflow(self, peer: Peer) -> None: ...
    def malformed(self, peer: Peer, why: str) -> None: ...


class Socket(AsyncSocket):  # type: ignore[misc]
    """Heartbeat and end of a client's transport; the two kinds of transport add how bytes leave."""

    def __init__(self, engine: Engine, peer: Peer) -> None:
        # Not upstream's __init__: its queue (2.6 kB) is of use to polling only.
        self.server = self.engine = engine
        self.sid = peer.eio_sid
        self.peer = peer
        self.session: dict[str, Any] = {}
        self.connected = True
        self.upgrading = self.upgraded = False
        self.closing = self.closed = False
        self._pinged = False
        self._loop = asyncio.get_running_loop()
        self._due = 0
        self.schedule_ping()

    # -- out -----------------------------------------------------------------------------------------------
    unsent: int
    """[bytes] not yet given to the network, or not fetched by a poll."""

    @property
    def behind(self) -> bool:
        """The client does not read as fast as it is sent to."""
        return self.unsent > BEHIND_BYTES

    def push(self, packet: Encoded) -> None:
        """Send one Socket.IO packet, nothing in between. Never waits, runs no callback."""
        raise NotImplementedError

    def post(self, packet: Encoded) -> None:
        """As :meth:`push`, but it need not leave before the end of the loop's turn; the order is kept."""
        self.push(packet)

    def send_now(self, packet: EngineIOPacket) -> None:
        """Send one Engine.IO packet."""
        raise NotImplementedError

    async def send(self, pkt: EngineIOPacket) -> None:
        """python-engineio's name for :meth:`send_now`."""
        self.send_now(pkt)

    # -- heartbeat -----------------------------------------------------------------------------------------
    def schedule_ping(self) -> None:
        """Next ping after ``pingInterval``."""
        self.stop_heartbeat()
        self._pinged = False
        self._due = self.engine.heartbeats.wait(self, self.engine.ping_interval)

    def stop_heartbeat(self) -> None:
        """No ping and no timeout any more."""
        self.engine.heartbeats.forget(self, self._due)

    def due(self) -> None:
        """It is time for a ping, or over for its answer."""
        if self._pinged:
            self.close_now(PING_TIMEOUT)
        else:
            self._pinged = True
            self._due = self.engine.heartbeats.wait(self, self.engine.ping_timeout)
            self.send_now(EngineIOPacket(PING))

    # -- in ------------------------------------------------------------------------------------------------
    def take_text(self, raw: bytes) -> None:
        """One Engine.IO packet in text form."""
        if self.closing:
            return
        kind = raw[:1]
        if kind == b"4":
            self.engine.sink.text(self.peer, raw, 1)
        elif kind == b"3":
            if self._pinged:
                self.schedule_ping()
                self.engine.sink.heard(self.peer)
        elif kind == b"1":
            self.close_now(CLIENT_DISCONNECT)
        elif kind not in (b"5", b"6"):
            self.engine.sink.malformed(self.peer, "engine.io packet type")

    def take_binary(self, data: bytes) -> None:
        """One binary message."""
        if not self.closing:
            self.engine.sink.binary(self.peer, data)

    # -- end -----------------------------------------------------------------------------------------------
    def close_now(self, reason: str, *, abort: bool = False) -> None:
        """End the transport, once. ``abort``: without sending what is queued."""
        if self.closing:
            return
        self.closing = True
        self.stop_heartbeat()
        self._end_transport(abort, reason)
        self.engine.ended[self.sid] = self
        self.engine.sink.closed(self.peer, reason)

    async def close(self, wait: bool = True, abort: bool = False, reason: str | None = None) -> None:
        """python-engineio's name for :meth:`close_now`."""
        self.close_now(reason or SERVER_DISCONNECT, abort=abort)

    def _end_transport(self, abort: bool, reason: str) -> None:
        raise NotImplementedError
