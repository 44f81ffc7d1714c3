"""``WS /v1/sessions/{id}/stream``: who may read a log by WebSocket, and the connection then.

Token and ownership are checked before the upgrade, so that a refusal is an HTTP status (PROTOCOL).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from moorage.accounts.tokens import InvalidToken
from moorage.errors import BackplaneError, HttpError, Unavailable
from moorage.events.frames import Resume
from moorage.events.log import EventLog
from moorage.events.readers.base import TRY_AGAIN, Limits
from moorage.events.readers.websocket import WebSocketReader
from moorage.sockets.background import Background
from moorage.sockets.handshake import ID_MAX
from moorage.sockets.owners import Owners
from moorage.sockets.websocket import Connection

SUBPROTOCOL = "moorage.v1"
BEARER = "bearer."
"""Subprotocols that browsers offer: the one that is selected, and the one that carries the token and never is."""

TOKEN_PARAMETERS = ("token", "access_token", "authorization", "bearer", "auth")
"""Where people put a token that does not belong in a URL, which proxies and browsers keep."""

TOGETHER_MAX = 32
"""Let in during one turn of the loop, some 10 ms: a thousand that come back at once must not hold up all else."""

_PATH = re.compile(r"/v1/sessions/([^/]+)/stream/?")

ReplyTo = Callable[[str, str, str, Any], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Admitted:
    """``subprotocol``: the one to select, or None. ``resume``: None without ``last_event_id``."""

    account: str
    session_id: str
    subprotocol: str | None
    resume: Resume | None


class Streams:
    """Admits readers and serves them. ``verify`` gives a token's account or raises InvalidToken.
    ``reply(account, session_id, question_id, answer)`` gets the replies of clients, once somebody takes them."""

    def __init__(
        self,
        log: EventLog,
        owners: Owners,
        verify: Callable[[object], Awaitable[str]],
        background: Background,
        *,
        max_message_bytes: int,
    ) -> None:
        self.reply: ReplyTo | None = None
        self.max_http_buffer_size = max_message_bytes
        self.max_buffer_bytes = log.settings.reader_max_buffer_bytes
        self._log = log
        self._owners = owners
        self._gate = asyncio.Semaphore(TOGETHER_MAX)
        self._verify = verify
        self._background = background
        self._limits = Limits.of(log.settings)

    @staticmethod
    def session_of(path: str) -> str | None:
        """The session whose stream that path is."""
        found = _PATH.fullmatch(path)
        return found[1] if found is not None else None

    async def admit(
        self, session_id: str, query_string: str, headers: Sequence[tuple[bytes, bytes]]
    ) -> Admitted:
        """Raises HttpError: 401, 404, or 503 when the session cannot be looked up."""
        async with self._gate:
            await asyncio.sleep(0)
        query = parse_qs(query_string, keep_blank_values=True)
        if any(name in query for name in TOKEN_PARAMETERS):
            raise HttpError(401, "Invalid token", "A token in the URL is refused")
        offered = _values(headers, b"sec-websocket-protocol")
        token = _token(headers, offered)
        if token is None:
            raise HttpError(401, "Missing authorization header")
        try:
            account = await self._verify(token)
        except InvalidToken:
            raise HttpError(401, "Invalid token") from None
        try:
            found = len(session_id) <= ID_MAX and await self._owners.owns(account, session_id)
        except BackplaneError:
            raise Unavailable from None
        if not found:
            raise HttpError(404, "Session not found")
        resume = None
        if "last_event_id" in query:
            last_seq, epoch = query.get("last_seq", [None])[0], query.get("epoch", [None])[0]
            resume = Resume.parse(query["last_event_id"][0], last_seq, epoch)
        return Admitted(account, session_id, SUBPROTOCOL if SUBPROTOCOL in offered else None, resume)

    def serve(self, connection: StreamConnection, admitted: Admitted) -> WebSocketReader:
        """Begin to read on an open connection."""

        def replied(question_id: str, answer: Any) -> None:
            if self.reply is not None:
                self._background.spawn(self._reply(admitted, question_id, answer))

        reader = WebSocketReader(admitted.session_id, self._limits, connection, replied)
        if not self._background.spawn(self._log.serve(reader, admitted.resume)):
            asyncio.get_running_loop().call_soon(reader.end, TRY_AGAIN)
        return reader

    async def _reply(self, admitted: Admitted, question_id: str, answer: Any) -> None:
        if self.reply is not None:
            await self.reply(admitted.account, admitted.session_id, question_id, answer)


class StreamConnection(Connection):
    """A WebSocket that reads a log. ``limits`` is :class:`Streams` itself."""

    def __init__(self, streams: Streams, admitted: Admitted, connections: set[Any]) -> None:
        super().__init__(streams, {}, connections)
        self._streams = streams
        self._admitted = admitted

    def start(self) -> None:
        self.owner = self._streams.serve(self, self._admitted)

    def write(self, data: bytes) -> None:
        """To the network, or into the transport's buffer."""
        self.raw.write(data)

    def unsent(self) -> int:
        """[bytes] in that buffer."""
        return self.raw.get_write_buffer_size()


def _values(headers: Sequence[tuple[bytes, bytes]], name: bytes) -> list[str]:
    lines = [value.decode("latin-1") for key, value in headers if key == name]
    return [part.strip() for line in lines for part in line.split(",")]


def _token(headers: Sequence[tuple[bytes, bytes]], offered: list[str]) -> str | None:
    for key, value in headers:
        if key == b"authorization":
            kind, _, token = value.decode("latin-1").partition(" ")
            if kind.lower() == "bearer" and token:
                return token.strip()
    return next((name.removeprefix(BEARER) for name in offered[1:] if name.startswith(BEARER)), None)
