"""How a client comes and goes: transport, connect handler, namespaces, disconnect handler.

The handlers of the application may wait, so each runs in a task; what must be known at once is told before it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from socketio import AsyncServer
from socketio.exceptions import ConnectionRefusedError as Refused

from moorage.cluster.local import LocalManager
from moorage.cluster.packets import CONNECT, CONNECT_ERROR, DISCONNECT, Packet, encode
from moorage.cluster.recovery import knows_offsets
from moorage.sockets.engine import Engine
from moorage.sockets.transport import SERVER_DISCONNECT, TRANSPORT_ERROR, Peer

logger = logging.getLogger(__name__)

JOIN_TIMEOUT_S = 45.0
"""[s] A client that is in no namespace for this long is closed; connectTimeout of Node's socket.io."""


class Lifecycle(AsyncServer):  # type: ignore[misc]
    """The part of :class:`~moorage.sockets.server.SocketServer` that lets clients in and out."""

    eio: Engine
    manager: LocalManager
    connect_payload: Callable[[str], dict[str, Any]]
    on_closed: list[Callable[[str, str], None]]
    join_timeout_s: float
    manager_initialized: bool
    _tasks: set[asyncio.Task[None]]

    # -- transport -----------------------------------------------------------------------------------------
    def opened(self, eio_sid: str, environ: dict[str, Any]) -> Peer:
        """A transport is there; no namespace yet."""
        if not self.manager_initialized:
            self.manager_initialized = True
            self.manager.initialize()
        self.environ[eio_sid] = environ
        peer = Peer(eio_sid)
        self._expect_join(peer)
        return peer

    def closed(self, peer: Peer, reason: str) -> None:
        """The transport is gone."""
        peer.closed = reason
        peer.partial, peer.attachments = None, []
        peer.backlog.clear()
        if peer.join_timer is not None:
            peer.join_timer.cancel()
        joined = self.manager.namespaces_of(peer.eio_sid)
        ending = [(ns, sid) for ns, sid in joined if self._begin_end(sid, ns, reason, transport=True)]
        if ending:
            self._spawn(self._ending(peer, ending, reason))
        else:
            self._forget(peer)

    async def _ending(self, peer: Peer, sockets: list[tuple[str, str]], reason: str) -> None:
        for namespace, sid in sockets:
            await self._finish_end(sid, namespace, reason)
        self._forget(peer)

    def _forget(self, peer: Peer) -> None:
        """No handler asks any more for what is known of a client that is gone."""
        if not peer.connecting:
            self.environ.pop(peer.eio_sid, None)
            self.eio.ended.pop(peer.eio_sid, None)

    def _close_transport(self, peer: Peer, reason: str, *, abort: bool = False) -> None:
        socket = self.eio.sockets.get(peer.eio_sid)
        if socket is not None:
            socket.close_now(reason, abort=abort)

    def take_backlog(self, peer: Peer) -> None:
        """Take what came while the connect handler ran."""
        raise NotImplementedError

    # -- connect -------------------------------------------------------------------------------------------
    async def _connecting(self, peer: Peer, packet: Packet) -> None:
        try:
            await self._handle_connect(peer.eio_sid, packet.namespace, packet.data, peer)
        finally:
            peer.connecting = False
            self.take_backlog(peer)
            if peer.closed is None:
                self._expect_join(peer)
            else:
                self._forget(peer)

    async def admit(self, eio_sid: str, namespace: str, auth: Any) -> str | None:
        """Give the socket its id, that of its last connection if it is to be recovered; None refuses."""
        recovery = self.manager.recovery
        sid: str | None = await recovery.admit(eio_sid, namespace, auth) if recovery is not None else None
        return sid if sid is not None else await self.manager.pre_connect(eio_sid, namespace)

    async def _handle_connect(
        self, eio_sid: str, namespace: str, data: Any, peer: Peer | None = None
    ) -> None:
        sid = await self.admit(eio_sid, namespace, data) if self._serves(namespace) else None
        if sid is None:
            self._push(eio_sid, CONNECT_ERROR, namespace, {"message": "Invalid namespace"})
            return
        refusal = await self._ask_connect_handler(sid, eio_sid, namespace, data)
        if refusal is not None:
            self._push(eio_sid, CONNECT_ERROR, namespace, refusal)
            await self.manager.disconnect(sid, namespace, ignore_queue=True)
            return
        payload = {"sid": sid, **(guarded("connect_payload", self.connect_payload, sid) or {})}
        recovery = self.manager.recovery
        if recovery is not None:
            aware = knows_offsets(self.environ.get(eio_sid, {}), data)
            payload |= recovery.connected(namespace, sid, aware=aware)
        self._push(eio_sid, CONNECT, namespace, payload)
        await self.manager.connect(sid, namespace)
        gone = peer.closed if peer is not None else None
        if gone is not None and self._begin_end(sid, namespace, gone, transport=True):
            # The handler has agreed to a client that had left meanwhile: undo what it did.
            await self._finish_end(sid, namespace, gone)
        elif recovery is not None and recovery.is_held(namespace, sid):
            self._spawn(recovery.replay(namespace, sid))

    def _serves(self, namespace: str) -> bool:
        return (
            namespace in self.handlers
            or namespace in self.namespace_handlers
            or self.namespaces == "*"
            or namespace in self.namespaces
        )

    async def _ask_connect_handler(
        self, sid: str, eio_sid: str, namespace: str, data: Any
    ) -> dict[str, Any] | None:
        """None: welcome. Else the data of CONNECT_ERROR."""
        environ = self.environ.get(eio_sid, {})
        try:
            try:
                welcome = await self._trigger_event("connect", namespace, sid, environ, data or None)
            except TypeError:
                if data:
                    raise
                # python-socketio's older signature, without auth
                welcome = await self._trigger_event("connect", namespace, sid, environ)
        except Refused as error:
            refusal: dict[str, Any] = error.error_args
            return refusal
        except ConnectionRefusedError:
            return {"message": "Connection refused by server"}
        except Exception:
            logger.exception("the connect handler failed")
            return {"message": "Internal error"}
        return dict(Refused().error_args) if welcome is False else None

    def _expect_join(self, peer: Peer) -> None:
        """(Re)start the clock of a client that is in no namespace."""
        if peer.join_timer is not None:
            peer.join_timer.cancel()
            peer.join_timer = None
        if peer.closed is None and not peer.connecting and not self.manager.namespaces_of(peer.eio_sid):
            loop = asyncio.get_running_loop()
            peer.join_timer = loop.call_later(
                self.join_timeout_s, self._close_transport, peer, TRANSPORT_ERROR
            )

    # -- end of a socket -------------------------------------------------------------------------------------
    def _begin_end(self, sid: str, namespace: str, reason: str, *, transport: bool = False) -> bool:
        """Tell who must know at once. False: not connected, or told already.

        ``transport``: nobody left the namespace, the connection ended, so the client may come back.
        """
        if not self.manager.is_connected(sid, namespace):
            return False
        if self.manager.recovery is not None:
            ended = not transport or reason == SERVER_DISCONNECT
            self.manager.recovery.gone(namespace, sid, ended=ended)
        self.manager.pre_disconnect(sid, namespace)
        for callback in self.on_closed:
            guarded("on_closed", callback, sid, reason)
        return True

    async def _finish_end(self, sid: str, namespace: str, reason: str, peer: Peer | None = None) -> None:
        """Run the disconnect handler, leave the rooms."""
        try:
            await self._trigger_event("disconnect", namespace, sid, reason)
        except Exception:
            logger.exception("the disconnect handler failed")
        await self.manager.disconnect(sid, namespace, ignore_queue=True)
        if peer is not None:
            self._expect_join(peer)

    # -- small ----------------------------------------------------------------------------------------------
    def _push(self, eio_sid: str, kind: int, namespace: str, data: Any, ack_id: int | None = None) -> None:
        self.manager.push((eio_sid,), encode(kind, namespace, ack_id, data))

    def _push_disconnect(self, eio_sid: str, namespace: str) -> None:
        self._push(eio_sid, DISCONNECT, namespace, None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a handler failed", exc_info=error)


def guarded(what: str, callback: Callable[..., Any], *args: Any) -> Any:
    """Call; an exception is logged and gives None."""
    try:
        return callback(*args)
    except Exception:
        logger.exception("%s failed", what)
        return None
