"""``subscribe`` and ``unsubscribe``: event logs over a Socket.IO connection.

Handlers are synchronous and take ``(sid, args, reply)``; junk is answered where an answer was asked for, else
ignored. A subscription ends with its socket, with ``unsubscribe``, or with the next ``subscribe`` of the session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moorage.cluster.packets import Encoded
from moorage.errors import BackplaneError
from moorage.events.frames import Resume
from moorage.events.log import EventLog
from moorage.events.readers.base import Limits, Reader
from moorage.events.readers.socketio import Carrier, SocketIoReader
from moorage.sockets.background import Background
from moorage.sockets.clients import Clients
from moorage.sockets.handshake import is_id
from moorage.sockets.owners import Owners

Reply = Callable[..., None]
Handler = Callable[[str, list[Any], Reply | None], None]

SUBSCRIPTIONS_MAX = 256
"""Of one socket, as for calls in flight: more sessions than a person looks at."""


class _Carrier:
    """One socket, as a reader needs it."""

    def __init__(self, sid: str, push: Callable[[str, Encoded], None], unsent: Callable[[str], int]) -> None:
        self._sid, self._push, self._unsent = sid, push, unsent

    def push(self, packet: Encoded) -> None:
        self._push(self._sid, packet)

    def unsent(self) -> int:
        return self._unsent(self._sid)


class _Subscription:
    """``reader`` is None until it is known that the session is the account's."""

    __slots__ = ("ended", "reader")

    def __init__(self) -> None:
        self.reader: Reader | None = None
        self.ended = False

    def end(self) -> None:
        self.ended = True
        if self.reader is not None:
            self.reader.end(None)


class Subscriptions:
    """``handlers`` goes into ``SocketServer.direct``, :meth:`closed` into its ``on_closed``."""

    def __init__(
        self,
        clients: Clients,
        owners: Owners,
        log: EventLog,
        background: Background,
        push: Callable[[str, Encoded], None],
        unsent: Callable[[str], int],
    ) -> None:
        self._clients = clients
        self._owners = owners
        self._log = log
        self._background = background
        self._push = push
        self._unsent = unsent
        self._limits = Limits.of(log.settings)
        self._by_sid: dict[str, dict[str, _Subscription]] = {}

    @property
    def handlers(self) -> dict[str, Handler]:
        """Event name → handler."""
        return {"subscribe": self.on_subscribe, "unsubscribe": self.on_unsubscribe}

    def on_subscribe(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        client, payload = self._clients.get(sid), _payload(args)
        session_id = payload.get("sessionId")
        if client is None:
            return
        if not is_id(session_id):
            return _answer(reply, "Invalid parameters")
        of_socket = self._by_sid.setdefault(sid, {})
        known = of_socket.get(session_id)
        if known is None and len(of_socket) >= SUBSCRIPTIONS_MAX:
            return _answer(reply, "Too many subscriptions")
        subscription = of_socket[session_id] = _Subscription()
        if known is not None:
            known.end()
        work = self._open(sid, client.account, session_id, _resume(payload), subscription, reply)
        if not self._background.spawn(work):
            self._remove(sid, session_id, subscription)
            _answer(reply, "Too many subscriptions")

    def on_unsubscribe(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        session_id = _payload(args).get("sessionId")
        if not is_id(session_id):
            return _answer(reply, "Invalid parameters")
        subscription = self._by_sid.get(sid, {}).get(session_id)
        if subscription is not None:
            subscription.end()
            self._remove(sid, session_id, subscription)
        _answer(reply)

    def closed(self, sid: str, reason: str) -> None:
        """The socket is gone."""
        for subscription in self._by_sid.pop(sid, {}).values():
            subscription.end()

    async def _open(
        self,
        sid: str,
        account: str,
        session_id: str,
        resume: Resume | None,
        subscription: _Subscription,
        reply: Reply | None,
    ) -> None:
        error = None
        try:
            if not await self._owners.owns(account, session_id):
                error = "Session not found"
        except BackplaneError:
            error = "Backplane unavailable"
        if error is not None:
            self._remove(sid, session_id, subscription)
            return _answer(reply, error)
        _answer(reply)
        if subscription.ended:
            return
        carrier: Carrier = _Carrier(sid, self._push, self._unsent)
        subscription.reader = SocketIoReader(session_id, self._limits, carrier)
        subscription.reader.on_end.append(lambda reader: self._remove(sid, session_id, subscription))
        await self._log.serve(subscription.reader, resume)

    def _remove(self, sid: str, session_id: str, subscription: _Subscription) -> None:
        of_socket = self._by_sid.get(sid)
        if of_socket is not None and of_socket.get(session_id) is subscription:
            del of_socket[session_id]
            if not of_socket:
                del self._by_sid[sid]


def _payload(args: list[Any]) -> dict[Any, Any]:
    return args[0] if args and isinstance(args[0], dict) else {}


def _resume(payload: dict[Any, Any]) -> Resume | None:
    after = payload.get("lastEventId")
    if after is None:
        return None
    return Resume.parse(after if isinstance(after, str) else "", payload.get("lastSeq"), payload.get("epoch"))


def _answer(reply: Reply | None, error: str | None = None) -> None:
    if reply is not None:
        reply({"ok": True} if error is None else {"ok": False, "error": error})
