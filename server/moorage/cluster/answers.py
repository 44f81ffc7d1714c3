"""Answers to what other nodes ask of a namespace.

A node that subscribes to the public channel must answer, or every caller waits for its timeout; so what cannot be
answered properly is answered with nothing in it. Handshakes are answered empty: they hold tokens.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from moorage.cluster import wire
from moorage.cluster.carriers import Carrier
from moorage.cluster.wire import Opts

logger = logging.getLogger(__name__)

ANSWER_BOUND_MS = 5000
"""Node's wait for answers; a handler that takes longer is answered for."""
ACK_BOUND_MAX_MS = 600_000
"""Longest time that a peer's acks are waited for."""


class LocalSockets(Protocol):
    """What this process has; the manager."""

    def matching(self, namespace: str, opts: Opts) -> Mapping[str, str]:
        """Sockets that ``opts`` means: sid -> eio_sid."""

    def describe(self, namespace: str, sid: str) -> dict[str, Any]:
        """``{id, handshake, rooms, data}`` of a socket."""

    def emit_acked(
        self, namespace: str, targets: Mapping[str, str], data: list[Any], on_ack: Callable[..., Any]
    ) -> Callable[[], None]:
        """Emit with an ack each; returns a function that stops waiting for them."""


class Answers:
    """The answering side. ``uid`` is this node's.

    ``handlers``: event of a server-side emit -> function or coroutine function; what it returns is the answer.
    ``malformed`` counts messages that could not be decoded.
    """

    def __init__(self, carrier: Carrier, local: LocalSockets, *, uid: str) -> None:
        self.handlers: dict[str, Callable[..., Any]] = {}
        self.malformed = 0
        self._carrier, self._local, self._uid = carrier, local, uid
        self._tasks: set[asyncio.Task[None]] = set()

    async def stop(self) -> None:
        """End running handlers."""
        if self._tasks:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    def asked(self, namespace: str, message: wire.Message | wire.Malformed) -> None:
        """A question to all nodes of ``namespace`` came."""
        if isinstance(message, wire.Malformed):
            self.malformed += 1
            return
        if message.uid == self._uid:
            return
        body = message.body()
        if isinstance(body, wire.FetchSockets):
            self._tell_sockets(namespace, message.uid, body)
        elif isinstance(body, wire.ServerSideEmit):
            task = asyncio.get_running_loop().create_task(self._run_handler(namespace, message.uid, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif isinstance(body, wire.Broadcast) and isinstance(body.requestId, str):
            self._emit(namespace, message.uid, body, body.requestId)
        else:
            self.malformed += 1

    def _reply(self, namespace: str, uid: str, number: int, request_id: str, **data: Any) -> None:
        self._carrier.reply(namespace, uid, number, {"requestId": request_id, **data})

    def _tell_sockets(self, namespace: str, uid: str, body: wire.FetchSockets) -> None:
        sockets = [self._local.describe(namespace, sid) for sid in self._local.matching(namespace, body.opts)]
        try:
            self._reply(namespace, uid, wire.FETCH_SOCKETS_RESPONSE, body.requestId, sockets=sockets)
        except (TypeError, ValueError):
            logger.warning("the data of a socket cannot be sent to other nodes and is left out")
            for socket in sockets:
                try:
                    wire.encode_payload(uid, namespace, wire.FETCH_SOCKETS_RESPONSE, socket)
                except (TypeError, ValueError):
                    socket["data"] = {}
            self._reply(namespace, uid, wire.FETCH_SOCKETS_RESPONSE, body.requestId, sockets=sockets)

    def _emit(self, namespace: str, uid: str, body: wire.Broadcast, request_id: str) -> None:
        data = body.event()
        if isinstance(data, wire.Malformed):
            self.malformed += 1
            return
        targets = self._local.matching(namespace, body.opts)
        self._reply(namespace, uid, wire.BROADCAST_CLIENT_COUNT, request_id, clientCount=len(targets))
        if not targets:
            return

        def acked(*args: Any) -> None:
            more = {} if len(args) == 1 else {"args": list(args)}  # Node reads the first one only
            first = args[0] if args else None
            self._reply(namespace, uid, wire.BROADCAST_ACK, request_id, packet=first, **more)

        forget = self._local.emit_acked(namespace, targets, data, acked)
        timeout = body.opts.flag("timeout")
        wanted = timeout if isinstance(timeout, (int, float)) and timeout > 0 else ANSWER_BOUND_MS
        asyncio.get_running_loop().call_later(min(wanted, ACK_BOUND_MAX_MS) / 1000, forget)

    async def _run_handler(self, namespace: str, uid: str, body: wire.ServerSideEmit) -> None:
        event, *args = body.packet or [None]
        handler = self.handlers.get(event) if isinstance(event, str) else None
        result = None
        if handler is not None:
            try:
                async with asyncio.timeout(ANSWER_BOUND_MS / 1000):
                    result = handler(*args)
                    if inspect.isawaitable(result):
                        result = await result
            except Exception:
                logger.exception("handler of server-side event %r failed", event)
                result = None
        if isinstance(body.requestId, str):
            try:
                self._reply(namespace, uid, wire.SERVER_SIDE_EMIT_RESPONSE, body.requestId, packet=result)
            except (TypeError, ValueError):
                logger.exception("the answer to server-side event %r cannot be sent", event)
                self._reply(namespace, uid, wire.SERVER_SIDE_EMIT_RESPONSE, body.requestId, packet=None)
