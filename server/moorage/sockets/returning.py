"""What Moorage adds to connection state recovery: who a client is, its registrations, its calls.

The token is checked again, before the client gets its socket back and by the connect handler. Calls of a caller
whose transport broke run on for the recovery window: back on the same replica, it gets the answer; back on another
one, it asks there again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from moorage.cluster.recovery import Recovery
from moorage.sockets.calling import Calling
from moorage.sockets.clients import Client, Clients
from moorage.sockets.handshake import Refusal, admit_or_fetch
from moorage.sockets.incoming import DirectHandler, Reply
from moorage.sockets.transport import PING_TIMEOUT, TRANSPORT_CLOSE, TRANSPORT_ERROR

BROKEN_TRANSPORT = (TRANSPORT_CLOSE, TRANSPORT_ERROR, PING_TIMEOUT)
"""Reasons after which a client may come back; its calls run on through the recovery window."""


class Returning:
    """``recovery`` is None where it is off (``window_s`` 0): then callers are gone at once."""

    def __init__(
        self,
        recovery: Recovery | None,
        clients: Clients,
        calling: Calling,
        verify: Callable[[str], Awaitable[str]],
        join: Callable[[str, str], object],
        caller_gone: Callable[[str], None],
        window_s: float,
    ) -> None:
        self._recovery, self._clients, self._calling = recovery, clients, calling
        self._verify, self._join = verify, join
        self._caller_gone, self._window_s = caller_gone, window_s
        self._timers: dict[str, asyncio.TimerHandle] = {}
        if recovery is not None:
            recovery.identify = self._identify
            recovery.identity_of = self._identity_of
            recovery.state_of = self._state_of
            recovery.restore = self._restore
            recovery.on_recovered.append(self._recovered)

    # -- calls of a caller that is away --------------------------------------------------------------------
    def caller_closed(self, sid: str, reason: str) -> None:
        """The transport of a socket that waits for calls is gone."""
        if reason in BROKEN_TRANSPORT and self._window_s > 0:
            self._timers[sid] = asyncio.get_running_loop().call_later(self._window_s, self._over, sid)
            if self._recovery is not None:
                self._recovery.expect("/", sid)
        else:
            self._caller_gone(sid)

    def _over(self, sid: str) -> None:
        del self._timers[sid]
        self._caller_gone(sid)

    def _recovered(self, namespace: str, sid: str) -> None:
        timer = self._timers.pop(sid, None)
        if timer is not None:
            timer.cancel()

    # -- who it is and what it had -------------------------------------------------------------------------
    async def _identify(self, auth: Any) -> str | None:
        client = await admit_or_fetch(auth, self._verify)
        return None if isinstance(client, Refusal) else client.identity

    def _identity_of(self, namespace: str, sid: str) -> str:
        client = self._clients.get(sid)
        return client.identity if client is not None else ""

    def _state_of(self, namespace: str, sid: str) -> dict[str, Any]:
        client: Client | None = self._clients.get(sid)
        return {
            "appState": client.app_state if client is not None else None,
            "resumable": self._calling.resumable_rooms(sid),
        }

    def watch(self, handler: DirectHandler) -> DirectHandler:
        """A handler of ``app-state`` around ``handler``: the state is not what the handshake said any more."""
        recovery = self._recovery
        if recovery is None:
            return handler

        def watched(sid: str, args: list[Any], reply: Reply | None) -> None:
            handler(sid, args, reply)
            if sid not in recovery.unaware and self._clients.get(sid) is not None:
                recovery.journal.changed("/", sid)

        return watched

    def _restore(self, namespace: str, sid: str, rooms: Collection[str], state: Any) -> None:
        """``state`` comes from another replica, so from a server that holds the key, of whatever version."""
        state = state if isinstance(state, dict) else {}
        client = self._clients.get(sid)
        if client is not None and state.get("appState") in ("active", "background"):
            client.app_state = state["appState"]
        resumable = state.get("resumable")
        resumable = resumable if isinstance(resumable, list) else []
        for room in rooms:
            if not self._calling.restore(sid, room, room in resumable):
                self._join(sid, room)
