"""A caller: one attempt a call, one typed end, always within a bound."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any, Literal

from moorage.client.connection import Connection
from moorage.client.errors import ClientError, ConnectionLost, result_of
from moorage.client.signin import Token
from moorage.client.socket import Socket
from moorage.errors import RpcError

SLACK_S = 3.0
"""[s] How long after a call's own limit we wait for the server's typed end before we end it ourselves."""

UNLIMITED_S = 45.0
"""[s] Longest call without a limit of its own: grace 15 s and 30 s from the request (PROTOCOL, RPC 3 and
4)."""


class Caller(Connection):
    """Calls methods of the account's daemons.

    Keywords as for :class:`Connection`, and: ``connect_wait`` [s]: how long a call waits for a connection
    when there is none, nothing having been sent. ``unlimited`` [s]: local bound of calls without
    ``timeout``, to be raised with the server's MOORAGE_RPC_CALL_TIMEOUT_MS and
    MOORAGE_RPC_RECONNECT_GRACE_MS."""

    def __init__(
        self,
        url: str,
        token: Token,
        *,
        connect_wait: float = 5.0,
        unlimited: float = UNLIMITED_S,
        **connection: Any,
    ) -> None:
        super().__init__(url, token, **connection)
        self._connect_wait = connect_wait
        self._unlimited = unlimited
        self._calls: set[asyncio.Future[list[Any]]] = set()

    async def call(
        self,
        method: str,
        params: Any = None,
        *,
        timeout: float | None = None,
        request_id: str | None = None,
        on_target_lost: Literal["fail", "wait"] = "fail",
    ) -> Any:
        """Call ``method`` and return its result.

        ``timeout`` [s] is the call's deadline, waiting for a target included; without it the server's own
        applies. One attempt: nothing is repeated, except that with ``on_target_lost="wait"`` *and* a
        ``request_id`` of yours the call is joined again, under that id, after our own connection was lost;
        the daemon must have registered the method as resumable. Cancelling the awaiting task cancels the
        call.

        Raises :class:`moorage.errors.RpcError` with ``code``, ``error`` and ``delivered``: the server's
        typed ends; :class:`ConnectionLost` if the connection is lost in mid call (``delivered``
        ``unknown``) or there is none (``no``); ``timeout`` with ``unknown`` if even the server's answer did
        not come. ValueError or TypeError for arguments that cannot be sent."""
        if timeout is not None and not timeout > 0:
            raise ValueError("timeout must be positive")
        until = time.monotonic() + (self._unlimited if timeout is None else timeout)
        message: dict[str, Any] = {
            "method": method,
            "params": params,
            "requestId": request_id or uuid.uuid4().hex,
        }
        if on_target_lost == "wait":
            message["onTargetLost"] = "wait"
        join = on_target_lost == "wait" and request_id is not None
        socket = await self._ready(min(self._connect_wait, until - time.monotonic()))
        sent = False
        while True:
            if timeout is not None:
                message["timeoutMs"] = max(1, round((until - time.monotonic()) * 1000))
            try:
                return result_of(await self._once(socket, message, until + SLACK_S))
            except ConnectionLost as lost:
                sent = sent or lost.delivered != "no"
                if not join:
                    raise
            try:
                socket = await self._ready(until - time.monotonic())
            except ConnectionLost as lost:
                raise ConnectionLost(lost.error, delivered="unknown" if sent else "no") from lost

    async def _once(self, socket: Socket, message: dict[str, Any], until: float) -> Any:
        future = socket.ask("rpc-call", message)
        self._calls.add(future)
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                answer = await future
        except (TimeoutError, asyncio.CancelledError) as end:
            # On the connection in use by now, since the one that carried the call may be the reason.
            carrier = self._socket if not socket.alive and self._socket is not None else socket
            carrier.write("rpc-cancel", {"requestId": message["requestId"]})
            if isinstance(end, asyncio.CancelledError):
                raise
            raise RpcError("timeout", delivered="unknown") from None
        finally:
            self._calls.discard(future)
        return answer[0] if answer else None

    async def _ready(self, timeout: float) -> Socket:
        if self._socket is None or not self._socket.alive:
            try:
                await self.connected(max(0.0, timeout))
            except ClientError as error:
                raise ConnectionLost(f"not connected: {error}", delivered="no") from error
        if self._socket is None:
            raise ConnectionLost("not connected", delivered="no")
        return self._socket

    async def _finish(self, grace: float) -> None:
        if self._calls:
            await asyncio.wait(list(self._calls), timeout=grace)
