"""What clients send that is no call: ``ping app-state session-alive machine-alive session-end message``.

Handlers are synchronous and take ``(sid, args, reply)``. What a client sent can be anything: junk is answered
where an answer was asked for, else ignored; it never becomes an exception.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from moorage.bugs import log_bug
from moorage.errors import BackplaneError
from moorage.sockets.activity import Activity
from moorage.sockets.background import Background
from moorage.sockets.clients import Clients
from moorage.sockets.handshake import is_id
from moorage.sockets.recipients import SESSION
from moorage.sockets.updates import Updates
from moorage.storage.state import State, plain

log = logging.getLogger(__name__)

Reply = Callable[..., None]
Handler = Callable[[str, list[Any], Reply | None], None]

PENDING_MAX = 256
"""Messages of one socket waiting to be stored, as for calls in flight."""

PENDING_MAX_BYTES = 4_194_304
"""The same in bytes: some messages of the largest size, whatever their number."""

TIME_MAX = 2**53
"""Largest integer that a JavaScript number holds exactly."""


class _Message(NamedTuple):
    account: str
    session_id: str
    content: bytes
    local_id: str | None
    reply: Reply | None


class _Queue:
    """Messages of one socket, stored one after the other, so that their order stays."""

    __slots__ = ("items", "size")

    def __init__(self) -> None:
        self.items: deque[_Message] = deque()
        self.size = 0


class Events:
    """Handlers of the direct events; ``handlers`` goes into ``SocketServer.direct``."""

    def __init__(
        self, clients: Clients, state: State, updates: Updates, activity: Activity, background: Background
    ) -> None:
        self._clients = clients
        self._state = state
        self._updates = updates
        self._activity = activity
        self._background = background
        self._queues: dict[str, _Queue] = {}

    @property
    def handlers(self) -> dict[str, Handler]:
        """Event name → handler."""
        return {
            "ping": self.on_ping,
            "app-state": self.on_app_state,
            "session-alive": self.on_session_alive,
            "machine-alive": self.on_machine_alive,
            "session-end": self.on_session_end,
            "message": self.on_message,
        }

    def on_ping(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        if reply is not None:
            reply({})

    def on_app_state(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        client, state = self._clients.get(sid), _payload(args).get("state")
        if client is not None and isinstance(state, str) and state in ("active", "background"):
            client.app_state = "active" if state == "active" else "background"

    def on_session_alive(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        payload = _payload(args)
        client, session_id, at = self._clients.get(sid), payload.get("sid"), _time(payload.get("time"))
        if client is not None and at is not None and is_id(session_id):
            self._activity.session_alive(client, session_id, at, payload.get("thinking") is True)

    def on_machine_alive(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        payload = _payload(args)
        client, machine_id, at = self._clients.get(sid), payload.get("machineId"), _time(payload.get("time"))
        if client is not None and at is not None and is_id(machine_id):
            self._activity.machine_alive(client, machine_id, at)

    def on_session_end(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        payload = _payload(args)
        client, session_id, at = self._clients.get(sid), payload.get("sid"), _time(payload.get("time"))
        if client is not None and at is not None and is_id(session_id):
            self._activity.session_end(client, session_id, at)

    def on_message(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        client, payload = self._clients.get(sid), _payload(args)
        if client is None:
            return
        session_id, message, local_id = payload.get("sid"), payload.get("message"), payload.get("localId")
        content: Any = {"t": "encrypted", "c": message} if isinstance(message, str) else message
        if not is_id(session_id) or message is None or not (local_id is None or is_id(local_id)):
            return _refuse(reply, "Invalid parameters")
        try:
            stored = plain(content)
        except ValueError:
            return _refuse(reply, "Invalid parameters")
        queue = self._queues.get(sid)
        if queue is None:
            queue = self._queues[sid] = _Queue()
        elif len(queue.items) >= PENDING_MAX or queue.size + len(stored) > PENDING_MAX_BYTES:
            return _refuse(reply, "Too many messages in flight")
        queue.items.append(_Message(client.account, session_id, stored, local_id, reply))
        queue.size += len(stored)
        if len(queue.items) == 1 and not self._background.spawn(self._work(sid, queue)):
            del self._queues[sid]
            _refuse(reply, "Too many messages in flight")

    async def _work(self, sid: str, queue: _Queue) -> None:
        try:
            while queue.items:
                message = queue.items[0]
                try:
                    await self._deliver(sid, message)
                except BackplaneError:
                    _refuse(message.reply, "Backplane unavailable")
                except Exception as error:  # the messages behind it must not go with it
                    log_bug(log, "storing a message", error)
                    _refuse(message.reply, "Internal error")
                queue.items.popleft()
                queue.size -= len(message.content)
        finally:
            del self._queues[sid]

    async def _deliver(self, sid: str, message: _Message) -> None:
        """Store, tell the others, answer the sender with the message's id and the number of its update.

        A repeated ``localId`` tells nobody again, unless the first attempt ended between storing and telling.
        """
        account, session_id, text, local_id, reply = message
        self._updates.require()
        added = await self._state.add_message(account, session_id, orjson.loads(text), local_id)
        if added is None:
            return _refuse(reply, "Session not found")
        stored, _ = added
        update_seq = stored.update_seq
        if update_seq is None:
            body = {"t": "new-message", "sid": session_id, "message": stored.as_json()}
            _, update_seq = await self._updates.update(account, SESSION, session_id, body, skip=sid)
        if reply is not None:
            reply({"ok": True, "id": stored.id, "seq": update_seq})
        if stored.update_seq is None and local_id is not None:
            try:
                await self._state.set_update_seq(account, session_id, stored, update_seq)
            except BackplaneError:
                pass  # a repetition will be told a second time, which receivers know by the message's id


def _payload(args: list[Any]) -> dict[Any, Any]:
    return args[0] if args and isinstance(args[0], dict) else {}


def _time(value: object) -> int | None:
    """Epoch milliseconds, or None for what is no such number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return int(value) if 0 <= value < TIME_MAX else None


def _refuse(reply: Reply | None, error: str) -> None:
    if reply is not None:
        reply({"ok": False, "error": error})
