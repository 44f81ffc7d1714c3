"""Engine.IO (protocol 4): python-engineio's server for HTTP, with our sockets behind it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import engineio
import orjson
from engineio.async_drivers.asgi import translate_request
from engineio.packet import OPEN
from engineio.packet import Packet as EngineIOPacket

from moorage.sockets.heartbeats import Heartbeats
from moorage.sockets.limited import LimitedLog
from moorage.sockets.polling import PollingSocket
from moorage.sockets.transport import SERVER_DISCONNECT, Sink, Socket

if TYPE_CHECKING:
    from moorage.sockets.websocket import DirectSocket

logger = logging.getLogger(__name__)

_ANSWERS = (
    ("Invalid session", 1, "Session ID unknown"),
    ("Invalid transport", 0, "Transport unknown"),
    ("The client is using an unsupported version", 5, "Unsupported protocol version"),
)
"""How python-engineio's refusals begin and what Node's engine.io answers (its ``Server.errorMessages``)."""

_affinity_hint = LimitedLog(logger, 60.0)


class Engine(engineio.AsyncServer):  # type: ignore[misc]
    """python-engineio's server with our sockets; WebSockets are :mod:`moorage.sockets.websocket`'s."""

    sink: Sink
    sockets: dict[str, Socket]

    def __init__(self, *, max_buffer_bytes: int, **options: Any) -> None:
        super().__init__(async_mode="asgi", monitor_clients=False, **options)
        self.max_buffer_bytes = max_buffer_bytes
        self.heartbeats = Heartbeats(min(self.ping_interval, self.ping_timeout))
        self._unflushed: list[DirectSocket] = []
        self.ended: dict[str, Socket] = {}  # gone, but a disconnect handler may still ask for the session
        self._async: dict[str, Any] = {**self._async, "translate_request": _translate}

    def open_packet(self, eio_sid: str, upgrades: list[str]) -> EngineIOPacket:
        """The handshake: ids, heartbeat in milliseconds, largest message in bytes."""
        handshake = {
            "sid": eio_sid,
            "upgrades": upgrades,
            "pingTimeout": int(self.ping_timeout * 1000),
            "pingInterval": int(self.ping_interval * 1000),
            "maxPayload": self.max_http_buffer_size,
        }
        return EngineIOPacket(OPEN, orjson.dumps(handshake).decode())

    def flush_later(self, socket: DirectSocket) -> None:
        """Call its ``flush`` at the end of this turn of the loop."""
        if not self._unflushed:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unflushed.append(socket)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        for socket in unflushed:
            socket.flush()

    def close_all(self, reason: str) -> None:
        """Close every transport."""
        for socket in list(self.sockets.values()):
            socket.close_now(reason)

    async def disconnect(self, sid: str | None = None) -> None:
        """Close one transport, or all; what is queued can still be fetched by polling, unless asked again."""
        if sid is None:
            self.close_all(SERVER_DISCONNECT)
        elif (socket := self.sockets.get(sid)) is not None:
            if socket.closing:
                del self.sockets[sid]
            socket.close_now(SERVER_DISCONNECT)

    async def get_session(self, sid: str) -> dict[str, Any]:
        """As upstream, and until the disconnect handlers are done."""
        socket = self.ended.get(sid) or self._get_socket(sid)
        session: dict[str, Any] = socket.session
        return session

    def refuses_origin(self, environ: dict[str, Any]) -> bool:
        """True for a cross-origin request that ``cors_allowed_origins`` does not allow."""
        origin = environ.get("HTTP_ORIGIN")
        allowed = self._cors_allowed_origins(environ)
        return origin is not None and allowed is not None and origin not in allowed

    async def _handle_connect(
        self, environ: dict[str, Any], transport: str, jsonp_index: int | None = None
    ) -> Any:
        if transport != "polling":
            return self._bad_request("Invalid transport")
        peer = self.sink.opened(self.generate_id(), environ)
        socket = PollingSocket(self, peer)
        self.sockets[peer.eio_sid] = socket
        upgrades = ["websocket"] if self.allow_upgrades else []
        return self._ok([self.open_packet(peer.eio_sid, upgrades)], jsonp_index=jsonp_index)

    def _bad_request(self, message: str | None = None) -> dict[str, Any]:
        code, text = next(
            ((code, text) for start, code, text in _ANSWERS if (message or "").startswith(start)),
            (3, "Bad request"),
        )
        return {
            "status": "400 BAD REQUEST",
            "headers": [("Content-Type", "application/json")],
            "response": orjson.dumps({"code": code, "message": text}),
        }

    def _log_error_once(self, message: str, message_key: str) -> None:
        if message_key == "bad-sid":
            _affinity_hint.warning(
                "long polling with a session id that is unknown here: with several replicas polling needs session "
                'affinity; let clients use transports: ["websocket", "polling"]'
            )
        else:
            logger.debug("refused: %s", message_key)


async def _translate(scope: dict[str, Any], receive: Any, send: Any) -> dict[str, Any]:
    """Upstream's environ with the real peer; upstream puts 127.0.0.1."""
    environ: dict[str, Any] = await translate_request(scope, receive, send)
    if not environ:
        # The client is gone before its request was read: any answer will do, nobody gets it.
        environ = {"REQUEST_METHOD": "GONE", "asgi.scope": scope, "asgi.send": send}
    environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = peer_of(scope)
    return environ


def peer_of(scope: dict[str, Any]) -> tuple[str, str]:
    """Address and port of the client."""
    host, port = scope.get("client") or ("", 0)
    return str(host), str(port)
