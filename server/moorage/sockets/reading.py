"""The event log of a replica with its ways to be read over sockets, put together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from moorage.events.log import EventLog
from moorage.events.readers.base import GOING_AWAY
from moorage.settings import Settings
from moorage.sockets.background import Background
from moorage.sockets.clients import Clients
from moorage.sockets.owners import Owners
from moorage.sockets.server import SocketServer
from moorage.sockets.streams import Streams
from moorage.sockets.subscriptions import Subscriptions
from moorage.storage.backplane import Backplane
from moorage.storage.state import State


class Reading:
    """``log``, and ``streams`` and ``subscriptions`` that read it; they are known to ``server`` from here on.

    ``verify`` gives the account of a token or raises InvalidToken.
    """

    def __init__(
        self,
        settings: Settings,
        backplane: Backplane | None,
        state: State,
        verify: Callable[[object], Awaitable[str]],
        clients: Clients,
        background: Background,
        server: SocketServer,
    ) -> None:
        self.log = EventLog(backplane, settings, readers=True)
        owners = Owners(state)
        self.log.live.on_deleted = owners.forget
        self.streams = Streams(
            self.log, owners, verify, background, max_message_bytes=settings.max_payload_bytes
        )
        self.subscriptions = Subscriptions(clients, owners, self.log, background, server.push, server.unsent)
        server.http_protocol.streams = self.streams  # type: ignore[attr-defined]
        server.direct.update(self.subscriptions.handlers)
        server.on_closed.append(self.subscriptions.closed)

    def close(self, key: str) -> bool:
        """End the connection of that key, for a drain. False: there is none."""
        reader = self.log.connections.get(key)
        if reader is not None:
            reader.end(GOING_AWAY)
        return reader is not None
