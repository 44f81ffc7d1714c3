"""From uvicorn to picows: uvicorn parses the HTTP request, picows takes the connection.

:class:`SocketHttpProtocol` does so at the Socket.IO path only; everything else is uvicorn's own WebSocket protocol's.
"""

from __future__ import annotations

import logging
from functools import lru_cache, partial
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote

import httptools
from picows import WSUpgradeResponse, WSUpgradeResponseWithListener
from picows.picows import WSProtocol  # type: ignore[attr-defined]

from moorage.sockets.direct import DirectPosts
from moorage.sockets.engine import Engine, peer_of
from moorage.sockets.polling import PollingSocket
from moorage.sockets.streams import Admitted, StreamConnection, Streams
from moorage.sockets.transport import SHUTTING_DOWN
from moorage.sockets.undecided import Undecided
from moorage.sockets.websocket import Connection, FreshConnection, UpgradingConnection

logger = logging.getLogger(__name__)

READ_BUFFER_BYTES = 2048
"""First size of a connection's read buffer, the least that picows takes; it doubles it where frames need more."""

SHARED_MAX_BYTES = 256
"""A header's value up to this size is kept once for all clients that send the same."""

_OWN = frozenset(
    {b"authorization", b"cookie", b"sec-websocket-key", b"x-forwarded-for", b"x-real-ip", b"x-request-id"}
)
"""Headers that differ from client to client, or are secrets that must not outlive their client."""


class _PicowsLog:
    """picows logs what clients do wrong as errors, and each connection; here all of that is debugging.

    A logger of its own per connection, which it makes when given a real one, costs 1 kB and is never needed.
    """

    def isEnabledFor(self, level: int) -> bool:
        return False

    def log(self, level: int, message: str, *args: object) -> None:
        logger.debug(message, *args)

    def debug(self, message: str, *args: object) -> None:
        logger.debug(message, *args)

    info = warning = error = debug

    def exception(self, message: str, *args: object) -> None:
        logger.exception(message, *args)


class SocketHttpProtocol(DirectPosts):
    """uvicorn's HTTP protocol; WebSocket upgrades at the Socket.IO path go to picows."""

    engine: ClassVar[Engine]
    socketio_path: ClassVar[str]
    streams: ClassVar[Streams | None] = None

    def on_headers_complete(self) -> None:
        if not self.parser.should_upgrade():  # a WebSocket keeps its scope for as long as it lives
            # For a response whose client does not read: its end cannot be sent, and must not be waited for. The name is
            # ours, so uvicorn's type of a scope does not know it.
            self.scope["moorage.abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        url = httptools.parse_url(self.url)
        path = unquote((url.path or b"/").decode("latin-1"))
        query_string = (url.query or b"").decode("latin-1")
        if path.rstrip("/") != self.socketio_path:
            session_id = Streams.session_of(path)
            if self.streams is None or session_id is None:
                super().handle_websocket_upgrade()
            else:
                Undecided(self, partial(self.streams.admit, session_id, query_string, self.headers))
            return
        environ = _environ(dict(self.scope), path, query_string)
        query = parse_qs(query_string)
        if self.engine.refuses_origin(environ):
            self.send_400_response("Not an accepted origin.")
        elif query.get("EIO") != ["4"] or query.get("transport") != ["websocket"]:
            self.send_400_response("Unsupported protocol version or transport.")
        elif "sid" not in query:
            self._hand_over(FreshConnection(self.engine, environ, self.connections))
        else:
            polling = self.engine.sockets.get(query["sid"][0])
            if isinstance(polling, PollingSocket) and self.engine.allow_upgrades:
                self._hand_over(UpgradingConnection(self.engine, environ, self.connections, polling))
            else:
                self.engine._log_error_once("", "bad-sid")
                self.send_400_response("Session ID unknown")

    def shutdown(self) -> None:
        # A poll that waits for news would hold up uvicorn's exit.
        self.engine.close_all(SHUTTING_DOWN)
        super().shutdown()

    def admitted(self, admitted: Admitted, early: bytes) -> None:
        """A reader of an event log may come in; ``early``: what it has sent already."""
        assert self.streams is not None
        connection = StreamConnection(self.streams, admitted, self.connections)
        self._hand_over(connection, subprotocol=admitted.subprotocol, early=early)

    def _hand_over(
        self, connection: Connection, *, subprotocol: str | None = None, early: bytes = b""
    ) -> None:
        self.connections.discard(self)
        # Only what the WebSocket handshake needs: picows limits the head to 16 kB, uvicorn does not.
        head = b"GET / HTTP/1.1\r\n"
        for name, value in self.headers:
            if name in (b"host", b"upgrade", b"connection") or name.startswith(b"sec-websocket-"):
                head += name + b": " + value + b"\r\n"
        head += b"\r\n" + early
        extra = {"Sec-WebSocket-Protocol": subprotocol} if subprotocol is not None else None
        response = WSUpgradeResponse.create_101_response(extra)
        protocol = WSProtocol(
            None, None, False, lambda request: WSUpgradeResponseWithListener(response, connection), _PicowsLog(),
            True,                                       # disconnect when a listener raises
            None,                                       # no handshake timeout: the request is complete
            False, 20, 20, 1,                           # no pings: Engine.IO has its own
            True,                                       # answer pings
            connection.bounds.max_http_buffer_size, None, READ_BUFFER_BYTES,
        )  # fmt: skip
        transport = self.transport
        protocol.connection_made(transport)
        transport.set_protocol(protocol)
        while head and not transport.is_closing():
            buffer = protocol.get_buffer(-1)
            size = min(len(head), len(buffer))
            buffer[:size] = head[:size]
            head = head[size:]
            protocol.buffer_updated(size)
        # uvloop keeps a method of ours for as long as the connection lives; it need not keep all that we hold.
        self.__dict__.clear()


def _environ(scope: dict[str, Any], path: str, query_string: str) -> dict[str, Any]:
    """The WSGI environ that python-engineio's ASGI driver makes, with the real peer."""
    scope |= {"type": "websocket", "path": path, "query_string": query_string.encode("latin-1")}
    address, port = peer_of(scope)
    environ: dict[str, Any] = {
        "SERVER_SOFTWARE": "asgi",
        "REQUEST_METHOD": "GET",
        "PATH_INFO": path,
        "QUERY_STRING": query_string,
        "RAW_URI": f"{path}?{query_string}" if query_string else path,
        "SCRIPT_NAME": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": address,
        "REMOTE_PORT": port,
        "SERVER_NAME": "asgi",
        "SERVER_PORT": "0",
        "asgi.scope": scope,
    }
    headers = []
    for name, value in scope["headers"]:
        own = name in _OWN or len(value) > SHARED_MAX_BYTES
        header, key, text = _header_of(name, value) if own else _shared_header(name, value)
        headers.append(header)
        environ[key] = f"{environ[key]},{text}" if key in environ else text
    scope["headers"] = headers
    environ["wsgi.url_scheme"] = environ.get("HTTP_X_FORWARDED_PROTO", scope.get("scheme") or "http")
    return environ


def _header_of(name: bytes, value: bytes) -> tuple[tuple[bytes, bytes], str, str]:
    """A header as ASGI has it, and its key and value as WSGI has them."""
    key = "HTTP_" + name.decode("latin-1").upper().replace("-", "_")
    return (name, value), key, value.decode("utf-8", "replace")


_shared_header = lru_cache(maxsize=1024)(_header_of)
