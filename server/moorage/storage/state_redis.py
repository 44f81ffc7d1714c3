"""State at ``STATE_URL``, by redis-py: one Lua script per step, so each is atomic and survives a lost race.

Commands are never retried here: a repeated write whose first reply was lost could be a second message. A
caller repeats with the same tag or localId, which makes it safe.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterable
from typing import Any

import orjson
from redis.asyncio import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from moorage.errors import BackplaneReply, BackplaneUnavailable, BackplaneUnknown
from moorage.storage import state_scripts as scripts
from moorage.storage.state import PAGE_MAX_BYTES, Message, Session, plain

CONNECTIONS_MAX = 16
"""Connections of one replica: state is not hot, and 30 replicas stay far below Redis's 10 000 clients."""

ERRORS = (RedisError, OSError, TimeoutError)
"""While getting a connection, where nothing is written yet: :class:`BackplaneUnavailable`. After writing:
:class:`BackplaneUnknown`, except a :class:`ResponseError`, Redis's own no: :class:`BackplaneReply`."""


class RedisState:
    """See :class:`~moorage.storage.state.State`. ``timeout_ms`` bounds each step: connecting, then the
    reply."""

    def __init__(
        self, url: str, *, name: str = "", ca_file: str | None = None, timeout_ms: int = 2000
    ) -> None:
        self._timeout_s = timeout_ms / 1000
        options: dict[str, Any] = {"ssl_ca_certs": ca_file} if ca_file and url.startswith("rediss://") else {}
        self._pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS_MAX,
            timeout=self._timeout_s,
            socket_timeout=self._timeout_s,
            socket_connect_timeout=self._timeout_s,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            client_name=f"{name}-state" if name else None,
            **options,
        )

    async def start(self) -> None:
        """Nothing to wait for: connections are made when needed."""

    async def stop(self) -> None:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._pool.disconnect()
        except ERRORS:
            pass

    async def _command(self, *args: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        except ERRORS as error:
            raise BackplaneUnavailable(f"state: {type(error).__name__}") from None
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.send_command(*args)
                return await connection.read_response()
        except ResponseError as error:
            raise BackplaneReply(str(error)[:200]) from None
        except ERRORS as error:
            raise BackplaneUnknown(f"state: {type(error).__name__}") from None
        finally:
            # redis-py has closed it if the reply is still to come, also after a cancellation: tested.
            await self._pool.release(connection)

    async def _run(self, script: str, account: str, *args: Any) -> Any:
        return await self._command("EVAL", script, 1, f"moorage:state:{{{account}}}", *args)

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
