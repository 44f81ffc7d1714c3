"""What the routes need, handed in by the composer: nothing here is global."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from moorage.accounts.tokens import Tokens
from moorage.errors import HttpError
from moorage.events.log import EventLog
from moorage.http.readiness import Readiness
from moorage.settings import Settings
from moorage.storage.state import State
from moorage.tasks.queue import TaskQueue


class Broadcast(Protocol):
    """What is needed of :class:`moorage.sockets.updates.Updates`, which says what each does."""

    def require(self) -> None: ...

    async def update(
        self, account: str, kind: str, target: str | None, body: dict[str, Any], skip: str | None = None
    ) -> tuple[str, int]: ...

    def ephemeral(
        self, account: str, kind: str, target: str | None, body: dict[str, Any], skip: str | None = None
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class HttpContext:
    """``presence(account)``: a user interface is active; raises PresenceUnknown."""

    settings: Settings
    tokens: Tokens
    state: State
    updates: Broadcast
    presence: Callable[[str], Awaitable[bool]]
    readiness: Readiness
    events: EventLog
    tasks: TaskQueue

    async def require_session(self, account: str, session_id: str) -> None:
        """Raises :class:`HttpError` 404 for an unknown session and for one of another account."""
        if await self.state.get_session(account, session_id) is None:
            raise HttpError(404, "Session not found")
