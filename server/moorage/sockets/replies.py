"""``reply``: an answer to a task's question, over the Socket.IO connection or a WebSocket that reads the log."""

from __future__ import annotations

from typing import Any

from moorage.errors import BackplaneError, EventTooLarge
from moorage.sockets.background import Background
from moorage.sockets.clients import Clients
from moorage.sockets.events import Handler, Reply
from moorage.sockets.handshake import is_id
from moorage.tasks.queue import TaskQueue


class Replies:
    """Handler of the direct event; ``handlers`` goes into ``SocketServer.direct``."""

    def __init__(self, clients: Clients, tasks: TaskQueue, background: Background) -> None:
        self._clients = clients
        self._tasks = tasks
        self._background = background

    @property
    def handlers(self) -> dict[str, Handler]:
        """Event name → handler."""
        return {"reply": self.on_reply}

    def on_reply(self, sid: str, args: list[Any], reply: Reply | None) -> None:
        client, payload = self._clients.get(sid), args[0] if args else None
        if client is None:
            return
        if not isinstance(payload, dict) or "answer" not in payload:
            return _end(reply, "Invalid parameters")
        session_id, question_id = payload.get("sessionId"), payload.get("questionId")
        if not is_id(session_id) or not is_id(question_id):
            return _end(reply, "Invalid parameters")
        work = self._carry(client.account, session_id, question_id, payload["answer"], reply)
        if not self._background.spawn(work):
            _end(reply, "Too many replies in flight")

    async def _carry(
        self, account: str, session_id: str, question_id: str, answer: Any, reply: Reply | None
    ) -> None:
        _end(reply, await self._error(account, session_id, question_id, answer))

    async def from_stream(self, account: str, session_id: str, question_id: str, answer: Any) -> bool:
        """The same for a frame ``reply``, which has no ack."""
        return await self._error(account, session_id, question_id, answer) is None

    async def _error(self, account: str, session_id: str, question_id: str, answer: Any) -> str | None:
        """Hand an answer to the task that asked; the error, if that is not possible."""
        try:
            if await self._tasks.reply(account, session_id, question_id, answer):
                return None
            return "Question not found"
        except BackplaneError:
            return "Backplane unavailable"
        except (ValueError, EventTooLarge):
            return "Invalid parameters"


def _end(reply: Reply | None, error: str | None) -> None:
    if reply is not None:
        reply({"ok": True} if error is None else {"ok": False, "error": error})
