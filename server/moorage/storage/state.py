"""What must outlive a process: sessions and their messages. The interface, its values and its bounds.

Implementations: :class:`~moorage.storage.state_memory.MemoryState` (one process) and
:class:`~moorage.storage.state_redis.RedisState`. Every method takes the account and sees nothing of another
one: a foreign session is as unknown as one that never was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from moorage.storage.unfit import unfit

PAGE_MAX_BYTES = 4_194_304
"""[bytes] of stored messages in one page; a page holds at least one message. Bounds memory per request, since
``limit`` messages of the largest size would be a gigabyte."""


@dataclass(frozen=True, slots=True)
class Session:
    """``seq``: 1, 2, 3 … in the order of creation within the account. Times are epoch milliseconds."""

    id: str
    tag: str
    seq: int
    metadata: Any
    active: bool
    created_at: int
    updated_at: int

    def as_json(self) -> dict[str, Any]:
        """``{id, tag, seq, metadata, active, createdAt, updatedAt}``."""
        return {
            "id": self.id,
            "tag": self.tag,
            "seq": self.seq,
            "metadata": self.metadata,
            "active": self.active,
            "createdAt": self.created_at,
            "updatedAt": self.updated_at,
        }


@dataclass(frozen=True, slots=True)
class Message:
    """``seq``: 1, 2, 3 … within the session. ``update_seq``: number of the update that told of it, where
    kept."""

    id: str
    seq: int
    content: Any
    local_id: str | None
    created_at: int
    update_seq: int | None = None

    def as_json(self) -> dict[str, Any]:
        """``{id, seq, content, localId, createdAt}``."""
        return {
            "id": self.id,
            "seq": self.seq,
            "content": self.content,
            "localId": self.local_id,
            "createdAt": self.created_at,
        }


class State(Protocol):
    """Every method is bounded in time and raises :class:`~moorage.errors.BackplaneError`."""

    async def start(self) -> None:
        """Get ready; does not wait for the storage to be there."""

    async def stop(self) -> None:
        """Let go of connections."""

    async def create_session(self, account: str, tag: str, metadata: Any) -> tuple[Session, bool]:
        """The account's session with that tag; True: created now. One per (account, tag) under any race."""

    async def list_sessions(self, account: str) -> list[Session]:
        """All of the account, newest first."""

    async def get_session(self, account: str, session_id: str) -> Session | None:
        """None: unknown or another account's."""

    async def set_active(self, account: str, session_id: str, active: bool, at: int) -> bool:
        """Store what was true at ``at`` [epoch ms]; False: no such session, or something later is stored."""

    async def delete_session(self, account: str, session_id: str) -> bool:
        """Removes it and its messages; False: unknown or another account's."""

    async def add_message(
        self, account: str, session_id: str, content: Any, local_id: str | None
    ) -> tuple[Message, bool] | None:
        """The stored message; False: one with that ``local_id`` was there before and is returned. None: no
        session."""

    async def set_update_seq(self, account: str, session_id: str, message: Message, update_seq: int) -> None:
        """Remember which update told of ``message``. Only messages with a ``local_id`` can come again, so
        only they are remembered."""

    async def list_messages(
        self, account: str, session_id: str, after_seq: int, limit: int
    ) -> tuple[list[Message], bool] | None:
        """Up to ``limit`` messages with a larger seq, in order, at most :data:`PAGE_MAX_BYTES`; True: more
        follow. None: no session."""


def plain(value: Any, name: str = "") -> bytes:
    """``value`` as JSON text, which is what may be stored and sent to others.

    NaN and infinities become null, as in JavaScript. Raises ValueError on what JSON or its readers cannot
    hold: bytes, lone surrogates, integers beyond 64 bits, nesting deeper than 254. Its text says what and where, as
    ``not representable as JSON: data.items[3]: set``, with ``name`` in the place of ``data``.
    """
    try:
        return orjson.dumps(value)
    except (TypeError, RecursionError):
        raise ValueError(f"not representable as JSON: {unfit(value, name)}") from None
