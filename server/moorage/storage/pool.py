"""Commands to the Redis at ``STATE_URL`` by redis-py: pooled, bounded, never retried.

A repeated write whose first reply was lost could be a second one. Whoever calls repeats, if what it does bears it.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from moorage.errors import BackplaneReply, BackplaneUnavailable, BackplaneUnknown

CONNECTIONS_MAX = 16
"""Connections of one pool: state is not hot, and 30 replicas stay far below Redis's 10 000 clients."""

ERRORS = (RedisError, OSError, TimeoutError)
"""While getting a connection, where nothing is written yet: :class:`BackplaneUnavailable`. After writing:
:class:`BackplaneUnknown`, except a :class:`ResponseError`, Redis's own no: :class:`BackplaneReply`."""


class RedisPool:
    """Connections to ``url``, made when needed. ``name``: shown by ``CLIENT LIST``. ``timeout_ms`` bounds each
    step: connecting, then the reply."""

    def __init__(self, url: str, *, name: str, ca_file: str | None, timeout_ms: int) -> None:
        self._timeout_s = timeout_ms / 1000
        options: dict[str, Any] = {"ssl_ca_certs": ca_file} if ca_file and url.startswith("rediss://") else {}
        self._pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS_MAX,
            timeout=self._timeout_s,
            # Ours alone: redis-py's own is asyncio.wait_for, which before Python 3.12 loses a cancellation that comes
            # just when the command was written, and with it the bound of the read that follows.
            socket_timeout=None,
            socket_connect_timeout=self._timeout_s,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            client_name=name or None,
            **options,
        )

    async def stop(self) -> None:
        """Let go of the connections."""
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._pool.disconnect()
        except ERRORS:
            pass

    async def command(self, *args: Any, blocks_s: float = 0.0) -> Any:
        """The reply. ``blocks_s``: how long Redis itself may wait before it answers; comes on top of the bound.

        Raises :class:`~moorage.errors.BackplaneError`, see :data:`ERRORS`.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
        except ERRORS as error:
            raise BackplaneUnavailable(f"state: {type(error).__name__}") from None
        try:
            async with asyncio.timeout(self._timeout_s + blocks_s):
                await connection.send_command(*args)
                # A bound given to redis-py itself would leave the reply to come on an open connection.
                return await connection.read_response(timeout=math.inf)
        except ResponseError as error:
            raise BackplaneReply(str(error)[:200]) from None
        except ERRORS as error:
            raise BackplaneUnknown(f"state: {type(error).__name__}") from None
        finally:
            # redis-py has closed it if the reply is still to come, also after a cancellation: tested.
            await self._pool.release(connection)
