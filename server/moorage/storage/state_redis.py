"""State at ``STATE_URL``, by redis-py: one Lua script per step, so each is atomic and survives a lost race.

A caller repeats with the same tag or localId, which makes it safe.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable
from typing import Any

import orjson

from moorage.storage import state_scripts as scripts
from moorage.storage.pool import RedisPool
from moorage.storage.state import PAGE_MAX_BYTES, Message, Session, plain


class RedisState:
    """See :class:`~moorage.storage.state.State`. ``timeout_ms`` bounds each step: connecting, then the
    reply."""

    def __init__(
        self, url: str, *, name: str = "", ca_file: str | None = None, timeout_ms: int = 2000
    ) -> None:
        self._pool = RedisPool(
            url, name=f"{name}-state" if name else "", ca_file=ca_file, timeout_ms=timeout_ms
        )

    async def start(self) -> None:
        """Nothing to wait for: connections are made when needed."""

    async def stop(self) -> None:
        await self._pool.stop()

    async def _run(self, script: str, account: str, *args: Any) -> Any:
        return await self._pool.command("EVAL", script, 1, f"moorage:state:{{{account}}}", *args)

    async def create_session(self, account: str, tag: str, metadata: Any) -> tuple[Session, bool]:
        created, session_id, fields = await self._run(
            scripts.CREATE, account, tag, uuid.uuid4().hex, plain(metadata), _now()
        )
        return _session(session_id, fields), created == 1

    async def list_sessions(self, account: str) -> list[Session]:
        rows = await self._run(scripts.LIST, account)
        return [_session(session_id, fields) for session_id, fields in rows if fields]

    async def get_session(self, account: str, session_id: str) -> Session | None:
        fields = await self._run(scripts.GET, account, session_id)
        return _session(session_id.encode(), fields) if fields else None

    async def set_active(self, account: str, session_id: str, active: bool, at: int) -> bool:
        return bool(await self._run(scripts.SET_ACTIVE, account, session_id, int(active), at, _now()))

    async def delete_session(self, account: str, session_id: str) -> bool:
        return bool(await self._run(scripts.DELETE, account, session_id))

    async def add_message(
        self, account: str, session_id: str, content: Any, local_id: str | None
    ) -> tuple[Message, bool] | None:
        now = _now()
        before = b'{"id":"%s","seq":' % uuid.uuid4().hex.encode()
        after = b',"content":%s,"localId":%s,"createdAt":%d}' % (plain(content), plain(local_id), now)
        has_local = 0 if local_id is None else 1
        reply = await self._run(
            scripts.ADD_MESSAGE, account, session_id, has_local, local_id or "", before, after, now
        )
        if reply[0] < 0:
            return None
        update_seq = int(reply[2]) if len(reply) > 2 and reply[2] is not None else None
        return _message(reply[1], update_seq), reply[0] == 1

    async def set_update_seq(self, account: str, session_id: str, message: Message, update_seq: int) -> None:
        if message.local_id is not None:
            await self._run(scripts.SET_UPDATE_SEQ, account, session_id, message.seq, update_seq)

    async def list_messages(
        self, account: str, session_id: str, after_seq: int, limit: int
    ) -> tuple[list[Message], bool] | None:
        reply = await self._run(scripts.LIST_MESSAGES, account, session_id, after_seq, limit, PAGE_MAX_BYTES)
        if reply[0] < 0:
            return None
        return [_message(text, None) for text in reply[1]], reply[0] == 1


def _now() -> int:
    return int(time.time() * 1000)


def _session(session_id: bytes, fields: Iterable[bytes]) -> Session:
    """From the flat reply of ``HGETALL``."""
    flat = list(fields)
    row = dict(zip(flat[::2], flat[1::2], strict=True))
    return Session(
        session_id.decode(),
        row[b"tag"].decode(),
        int(row[b"seq"]),
        orjson.loads(row[b"metadata"]),
        row[b"active"] == b"1",
        int(row[b"createdAt"]),
        int(row[b"updatedAt"]),
    )


def _message(text: bytes, update_seq: int | None) -> Message:
    row = orjson.loads(text)
    return Message(row["id"], row["seq"], row["content"], row["localId"], row["createdAt"], update_seq)
