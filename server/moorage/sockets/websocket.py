"""WebSocket transport on picows: no writer task, no task per message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from engineio.packet import MESSAGE, NOOP
from engineio.packet import Packet as EngineIOPacket
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from moorage.cluster.packets import BINARY, TEXT, Encoded, frame
from moorage.sockets.engine import Engine
from moorage.sockets.polling import PollingSocket
from moorage.sockets.transport import (
    CLIENT_DISCONNECT,
    SHUTTING_DOWN,
    TRANSPORT_CLOSE,
    Peer,
    Socket,
)

CLOSE_WAIT_S = 2.0
"""[s] The client's answer to our close frame; then the connection is cut."""

POSTED_MAX_BYTES = 65_536
"""What is posted to one client is joined up to this size; beyond it, joining costs more than another write."""

UPGRADE_TIMEOUT_S = 10.0
"""[s] From the WebSocket of an upgrade to its last step; upgradeTimeout of Node's engine.io."""


class Owner(Protocol):
    """Who gets a connection's messages."""

    def take_text(self, raw: bytes) -> None: ...
    def take_binary(self, data: bytes) -> None: ...
    def bad_frame(self, why: str) -> None: ...
    def transport_full(self) -> None: ...
    def transport_gone(self, deliberate: bool = False) -> None: ...
    def shutdown(self) -> None: ...


class Bounds(Protocol):
    """[bytes] Unsent before the owner is told; the largest message of a client."""

    max_buffer_bytes: int
    max_http_buffer_size: int


class Connection(WSListener):  # type: ignore[misc]
    """One WebSocket: puts fragments together, closes politely, stands in uvicorn's list of connections."""

    def __init__(self, bounds: Bounds, environ: dict[str, Any], connections: set[Any]) -> None:
        self.bounds = bounds
        self.environ = environ
        self.owner: Owner | None = None
        self._connections = connections
        self._parts: list[bytes] = []
        self._parts_type = 0
        self._size = 0
        self._cut_timer: asyncio.TimerHandle | None = None

    # -- picows --------------------------------------------------------------------------------------------
    def on_ws_connected(self, transport: WSTransport) -> None:
        self.ws = transport
        self.raw: asyncio.Transport = transport.underlying_transport
        # pause_writing is then the sign that the client does not read.
        self.raw.set_write_buffer_limits(high=self.bounds.max_buffer_bytes)
        self._connections.add(self)
        self.start()

    def start(self) -> None:
        """Attach an owner."""
        raise NotImplementedError

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        if kind == WSMsgType.CLOSE:
            self._on_close_frame(frame)
        elif self.owner is None or kind == WSMsgType.PONG:
            pass
        elif frame.rsv1 or frame.rsv2 or frame.rsv3:
            self.owner.bad_frame("reserved bits")
        elif kind != WSMsgType.CONTINUATION and frame.fin and not self._parts_type:
            self._deliver(kind, frame.get_payload_as_bytes())
        else:
            self._on_fragment(self.owner, kind, frame)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self._connections.discard(self)
        if self._cut_timer is not None:
            self._cut_timer.cancel()
        owner, self.owner = self.owner, None
        if owner is not None:
            owner.transport_gone()

    def pause_writing(self) -> None:
        if self.owner is not None:
            self.owner.transport_full()

    def resume_writing(self) -> None:
        """Nothing waits for it."""

    # -- uvicorn -------------------------------------------------------------------------------------------
    def shutdown(self) -> None:
        """uvicorn stops; sockets that are still here are told to come again."""
        if self.owner is not None:
            self.owner.shutdown()
        else:
            self.close(WSCloseCode.SERVICE_RESTART)

    # -- ours ----------------------------------------------------------------------------------------------
    def close(self, code: int) -> None:
        """Send what is queued and a close frame, wait for the client's for a moment."""
        self.owner = None
        self.ws.send_close(code)
        if self._cut_timer is None:
            self._cut_timer = asyncio.get_running_loop().call_later(CLOSE_WAIT_S, self.raw.abort)

    def abort(self) -> None:
        """Cut at once; what is queued is dropped."""
        self.owner = None
        self.raw.abort()

    def _deliver(self, kind: int, data: bytes) -> None:
        owner = self.owner
        if owner is None:
            return
        if kind == WSMsgType.TEXT:
            owner.take_text(data)
        else:
            owner.take_binary(data)

    def _on_fragment(self, owner: Owner, kind: int, frame: WSFrame) -> None:
        if (kind == WSMsgType.CONTINUATION) is not bool(self._parts_type):
            owner.bad_frame("fragments")
            return
        if kind != WSMsgType.CONTINUATION:
            self._parts_type = kind
        self._size += frame.payload_size
        if self._size > self.bounds.max_http_buffer_size:
            owner.bad_frame("message too large")
            return
        self._parts.append(frame.get_payload_as_bytes())
        if frame.fin:
            kind, data = self._parts_type, b"".join(self._parts)
            self._parts, self._parts_type, self._size = [], 0, 0
            self._deliver(kind, data)

    def _on_close_frame(self, frame: WSFrame) -> None:
        if not self.ws.is_close_frame_sent:
            self.ws.send_close(frame.get_close_code() or WSCloseCode.OK)
        self.ws.disconnect()
        if self._cut_timer is None:
            self._cut_timer = asyncio.get_running_loop().call_later(CLOSE_WAIT_S, self.raw.abort)
        owner, self.owner = self.owner, None
        if owner is not None:
            # Python's Socket.IO clients leave with a close frame 1000 and nothing before it; a browser's cut
            # transport closes without a code, and one that breaks closes with nothing at all.
            owner.transport_gone(deliberate=frame.get_close_code() == WSCloseCode.OK)


class FreshConnection(Connection):
    """A client that begins with WebSocket."""

    def __init__(self, engine: Engine, environ: dict[str, Any], connections: set[Any]) -> None:
        super().__init__(engine, environ, connections)
        self.engine = engine

    def start(self) -> None:
        peer = self.engine.sink.opened(self.engine.generate_id(), self.environ)
        socket = DirectSocket(self.engine, peer, self)
        self.engine.sockets[peer.eio_sid] = socket
        socket.send_now(self.engine.open_packet(peer.eio_sid, []))


class UpgradingConnection(Connection):
    """A polling client that moves over: its ``2probe`` is answered, its ``5`` replaces the polling socket."""

    def __init__(
        self, engine: Engine, environ: dict[str, Any], connections: set[Any], polling: PollingSocket
    ) -> None:
        super().__init__(engine, environ, connections)
        self._polling = polling

    def start(self) -> None:
        if self._polling.upgrading or self._polling.closing:
            self.close(WSCloseCode.POLICY_VIOLATION)
            return
        self._polling.upgrading = True
        self.owner = self
        self._timer = asyncio.get_running_loop().call_later(UPGRADE_TIMEOUT_S, self.bad_frame, "timeout")

    def take_text(self, raw: bytes) -> None:
        if self._polling.closing:
            self.bad_frame("closed")
        elif raw == b"2probe":
            self.raw.write(frame(TEXT, b"3probe"))
            self._polling.send_now(EngineIOPacket(NOOP))  # ends the poll that waits
        elif raw == b"5":
            self._timer.cancel()
            DirectSocket.replace(self._polling, self)
        else:
            self.bad_frame("probe")

    def take_binary(self, data: bytes) -> None:
        self.bad_frame("probe")

    def bad_frame(self, why: str) -> None:
        self.transport_gone()
        self.close(WSCloseCode.POLICY_VIOLATION)

    def transport_full(self) -> None:
        self.raw.abort()

    def transport_gone(self, deliberate: bool = False) -> None:
        self._timer.cancel()
        self._polling.upgrading = False

    def shutdown(self) -> None:
        self.bad_frame("shutdown")


class DirectSocket(Socket):
    """A client on WebSocket: what is pushed is written to the transport in the same call, what is posted at the end
    of the loop's turn, in one write with all else that is for this client."""

    def __init__(self, engine: Engine, peer: Peer, connection: Connection) -> None:
        self._connection = connection
        self._write: Callable[[bytes], None] = connection.raw.write
        self._posted: bytes | None = None
        connection.owner = self
        super().__init__(engine, peer)
        self.upgraded = True

    @classmethod
    def replace(cls, polling: PollingSocket, connection: Connection) -> None:
        """Go on with a client that was polling; nothing queued is lost, the order is kept."""
        socket = cls(polling.engine, polling.peer, connection)
        socket.session = polling.session
        polling.engine.sockets[socket.sid] = socket
        for packet in polling.drain():
            socket.send_now(packet)
        polling.retire()

    @property
    def unsent(self) -> int:  # type: ignore[override]
        return self._connection.raw.get_write_buffer_size() + len(self._posted or b"")

    def push(self, packet: Encoded) -> None:
        if self._posted is None:
            self._write(packet.wire)
        else:
            self._append(packet.wire)

    def post(self, packet: Encoded) -> None:
        if self._posted is None:
            self._posted = packet.wire
            self.engine.flush_later(self)
        else:
            self._append(packet.wire)

    def _append(self, data: bytes) -> None:
        assert self._posted is not None
        self._posted += data
        if len(self._posted) > POSTED_MAX_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was posted."""
        posted, self._posted = self._posted, None
        if posted is not None:
            self._write(posted)

    def send_now(self, packet: EngineIOPacket) -> None:
        data = packet.data
        if packet.packet_type == MESSAGE and isinstance(data, bytes):
            wire = frame(BINARY, data)
        else:
            # Not packet.encode(): polling may have left base64 in its cache.
            wire = frame(TEXT, b"%d%b" % (packet.packet_type, str(data or "").encode()))
        if self._posted is None:
            self._write(wire)
        else:
            self._append(wire)

    # -- Owner ---------------------------------------------------------------------------------------------
    def bad_frame(self, why: str) -> None:
        self.engine.sink.malformed(self.peer, why)

    def transport_full(self) -> None:
        # Inside a write, so perhaps inside a loop over a room: the rest follows in the next turn of the loop.
        self._write = _nowhere
        self._loop.call_soon(self.engine.sink.overflow, self.peer)
        self._connection.raw.abort()

    def transport_gone(self, deliberate: bool = False) -> None:
        self.close_now(CLIENT_DISCONNECT if deliberate else TRANSPORT_CLOSE, abort=True)

    def shutdown(self) -> None:
        self.close_now(SHUTTING_DOWN)

    def _end_transport(self, abort: bool, reason: str) -> None:
        self.closed = True
        if not abort:
            self.flush()
        self._write = _nowhere
        self.engine.sockets.pop(self.sid, None)
        if abort:
            self._connection.abort()
        else:
            code = WSCloseCode.SERVICE_RESTART if reason == SHUTTING_DOWN else WSCloseCode.OK
            self._connection.close(code)


def _nowhere(data: bytes) -> None:
    """Where a closed socket writes."""
