"""Who may connect, as what. The checks and their order are the protocol's; the first that fails is the
answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeGuard

from socketio.exceptions import ConnectionRefusedError

from moorage.accounts.tokens import InvalidToken
from moorage.sockets.clients import Client, Clients, Scope

log = logging.getLogger("moorage.connections")
"""A logger of its own: its line is promised by the protocol whatever the log level (:mod:`moorage.logs`)."""

ID_MAX = 256
"""Longest session or machine id, characters, as for method names: an id becomes part of a room's name."""

LABEL_MAX = 64
"""A label is for people; what is longer is cut."""


class Refusal(NamedTuple):
    """``message`` is the client's ``connect_error.message``."""

    message: str


NO_TOKEN = Refusal("Missing authentication token")
NO_SESSION = Refusal("Session ID required for session-scoped clients")
NO_MACHINE = Refusal("Machine ID required for machine-scoped clients")
BAD_TOKEN = Refusal("Invalid authentication token")


def is_id(value: object) -> TypeGuard[str]:
    """Whether ``value`` can be a session or machine id: text of 1 to 256 characters, encodable as UTF-8."""
    return isinstance(value, str) and 0 < len(value) <= ID_MAX and _is_text(value)


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:  # lone surrogates, which JSON can express
        return False
    return True


def _read(auth: object) -> tuple[str, Client] | Refusal:
    """The token, and the client it would be if the token is good (its account still open)."""
    if not isinstance(auth, dict):
        return NO_TOKEN
    token, kind = auth.get("token"), auth.get("clientType")
    if not isinstance(token, str) or not token:
        return NO_TOKEN
    session_id, machine_id = auth.get("sessionId"), auth.get("machineId")
    scope: Scope = "user-scoped"
    if kind == "session-scoped":
        if not is_id(session_id):
            return NO_SESSION
        scope = "session-scoped"
    elif kind == "machine-scoped":
        if not is_id(machine_id):
            return NO_MACHINE
        scope = "machine-scoped"
    label, app_state = auth.get("client"), auth.get("appState")
    return token, Client(
        account="",
        scope=scope,
        session_id=session_id if scope == "session-scoped" else None,
        machine_id=machine_id if scope == "machine-scoped" else None,
        label=label[:LABEL_MAX] if isinstance(label, str) and _is_text(label) else None,
        app_state=app_state if app_state in ("active", "background") else None,
    )


def admit(auth: object, verify: Callable[[str], str]) -> Client | Refusal:
    """What the ``auth`` of a CONNECT packet makes of its sender. Never raises for what a client sent.

    ``verify`` gives the account of a token or raises :class:`InvalidToken`; it is asked last.
    """
    read = _read(auth)
    if isinstance(read, Refusal):
        return read
    token, client = read
    try:
        client.account = verify(token)
    except InvalidToken:
        return BAD_TOKEN
    return client


async def admit_or_fetch(auth: object, verify: Callable[[str], Awaitable[str]]) -> Client | Refusal:
    """:func:`admit` with a ``verify`` that may have to fetch an issuer's keys; bounded by it."""
    read = _read(auth)
    if isinstance(read, Refusal):
        return read
    token, client = read
    try:
        client.account = await verify(token)
    except InvalidToken:
        return BAD_TOKEN
    return client


class Door:
    """``connect`` and ``disconnect`` of the Socket.IO server: admission, rooms, the line in the log.

    ``join`` puts a socket into a room. ``on_connected`` and ``on_disconnected`` are called with the client,
    after it entered its rooms and after it is forgotten; they are synchronous and must not raise.
    """

    def __init__(
        self,
        clients: Clients,
        verify: Callable[[str], Awaitable[str]],
        join: Callable[[str, str], object],
    ) -> None:
        self._clients = clients
        self._verify = verify
        self._join = join
        self._entering: set[str] = set()
        self.on_connected: list[Callable[[Client], None]] = []
        self.on_disconnected: list[Callable[[Client], None]] = []

    async def connect(self, sid: str, environ: Any, auth: object = None) -> None:
        """Raises socketio's ``ConnectionRefusedError`` with the protocol's message."""
        self._entering.add(sid)
        try:
            client = await admit_or_fetch(auth, self._verify)
            if sid not in self._entering:  # it went while keys were fetched: nobody would remove it later
                client = BAD_TOKEN
        finally:
            self._entering.discard(sid)
        if isinstance(client, Refusal):
            raise ConnectionRefusedError(client.message)
        client.sid = sid
        self._clients.add(client)
        for room in client.rooms:
            self._join(sid, room)
        log.info("socket connected account=%s scope=%s socket.id=%s", client.account, client.scope, sid)
        for told in self.on_connected:
            told(client)

    def disconnect(self, sid: str, reason: object = None) -> None:
        """Forget the socket. Its rooms are left by the server itself. Unknown and repeated sids are
        ignored."""
        self._entering.discard(sid)
        client = self._clients.remove(sid)
        if client is not None:
            for told in self.on_disconnected:
                told(client)
