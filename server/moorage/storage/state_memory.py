"""State of one process, in memory: what a server without Redis uses. Same behaviour as the Redis one."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from moorage.storage.state import PAGE_MAX_BYTES, Message, Session, plain


@dataclass(slots=True)
class _Stored:
    session: Session
    active_at: int = 0
    messages: list[tuple[Message, int]] = field(default_factory=list)  # with its stored size
    by_local_id: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Account:
    last_seq: int = 0
    by_tag: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, _Stored] = field(default_factory=dict)


class MemoryState:
    """See :class:`~moorage.storage.state.State`. Nothing here waits, so every method is atomic."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    async def start(self) -> None:
        pass

    async def stop(self) -> None:
        pass

    def _find(self, account: str, session_id: str) -> _Stored | None:
        owner = self._accounts.get(account)
        return owner.sessions.get(session_id) if owner else None

    async def create_session(self, account: str, tag: str, metadata: Any) -> tuple[Session, bool]:
        stored = orjson.loads(plain(metadata))
        owner = self._accounts.setdefault(account, _Account())
        known = owner.by_tag.get(tag)
        if known is not None:
            return owner.sessions[known].session, False
        owner.last_seq += 1
        now = int(time.time() * 1000)
        session = Session(uuid.uuid4().hex, tag, owner.last_seq, stored, True, now, now)
        owner.sessions[session.id] = _Stored(session)
        owner.by_tag[tag] = session.id
        return session, True

    async def list_sessions(self, account: str) -> list[Session]:
        owner = self._accounts.get(account)
        return [stored.session for stored in reversed(owner.sessions.values())] if owner else []

    async def get_session(self, account: str, session_id: str) -> Session | None:
        stored = self._find(account, session_id)
        return stored.session if stored else None

    async def set_active(self, account: str, session_id: str, active: bool, at: int) -> bool:
        stored = self._find(account, session_id)
        if stored is None or at < stored.active_at:
            return False
        stored.active_at = at
        stored.session = replace(stored.session, active=active, updated_at=int(time.time() * 1000))
        return True

    async def delete_session(self, account: str, session_id: str) -> bool:
        stored = self._find(account, session_id)
        if stored is None:
            return False
        owner = self._accounts[account]
        del owner.sessions[session_id]
        del owner.by_tag[stored.session.tag]
        return True

    async def add_message(
        self, account: str, session_id: str, content: Any, local_id: str | None
    ) -> tuple[Message, bool] | None:
        text = plain(content)
        stored = self._find(account, session_id)
        if stored is None:
            return None
        if local_id is not None and (seq := stored.by_local_id.get(local_id)) is not None:
            return stored.messages[seq - 1][0], False
        now = int(time.time() * 1000)
        message = Message(uuid.uuid4().hex, len(stored.messages) + 1, orjson.loads(text), local_id, now)
        stored.messages.append((message, len(text)))
        if local_id is not None:
            stored.by_local_id[local_id] = message.seq
        stored.session = replace(stored.session, updated_at=now)
        return message, True

    async def set_update_seq(self, account: str, session_id: str, message: Message, update_seq: int) -> None:
        stored = self._find(account, session_id)
        if stored is not None and message.local_id is not None and message.seq <= len(stored.messages):
            known, size = stored.messages[message.seq - 1]
            stored.messages[message.seq - 1] = (replace(known, update_seq=update_seq), size)

    async def list_messages(
        self, account: str, session_id: str, after_seq: int, limit: int
    ) -> tuple[list[Message], bool] | None:
        stored = self._find(account, session_id)
        if stored is None:
            return None
        page: list[Message] = []
        total = 0
        for message, size in stored.messages[after_seq : after_seq + limit]:
            total += size
            if page and total > PAGE_MAX_BYTES:
                break
            page.append(message)
        return page, after_seq + len(page) < len(stored.messages)
