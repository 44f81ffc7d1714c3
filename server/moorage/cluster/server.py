"""python-socketio's server with connection state recovery, for applications that are no Moorage."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import socketio
from socketio.exceptions import ConnectionRefusedError as Refused
from socketio.packet import ACK, BINARY_ACK, CONNECT, CONNECT_ERROR

from moorage.cluster import checks
from moorage.cluster.fanout import FanOut
from moorage.cluster.recovery import Recovery, knows_offsets

logger = logging.getLogger(__name__)

Identity = Callable[[dict[str, Any], Any], str | Awaitable[str | None] | None]


class AsyncServer(socketio.AsyncServer):  # type: ignore[misc]
    """``socketio.AsyncServer`` whose clients are recovered as Node's are; all else is as there.

    ``client_manager`` is a :class:`RedisStreamsManager` with a ``recovery_secret``. ``identity(environ, auth)``, if
    given, says who a client is (None: nobody who can be recovered), from what proves it; a socket is given back only
    to the same one. It runs before the connect handler; a client for which it raises, or returns something else, is
    refused. Without it, who has the private id is the one, as with Node. The connect handler runs for recovered
    sockets, too; :meth:`is_recovered` tells.
    """

    manager: FanOut

    def __init__(self, *args: Any, identity: Identity | None = None, **options: Any) -> None:
        if identity is not None and not callable(identity):
            raise TypeError(f"identity must be a function (environ, auth), not {type(identity).__name__}")
        super().__init__(*args, **options)
        self._identity = identity
        self._connecting: dict[tuple[str, str], tuple[Any, str | None]] = {}
        self._closed: set[str] = set()
        """Transports that are ending: their clients leave no namespace, they may come back."""
        self._replays: set[asyncio.Task[None]] = set()
        if self._recovery is None:
            raise ValueError(
                "client_manager must be a RedisStreamsManager with a recovery_secret and a recovery_window_ms above 0"
            )
        self.manager.known_sid = self._admit

    @property
    def _recovery(self) -> Recovery | None:
        return getattr(self.manager, "recovery", None)

    def is_recovered(self, sid: str, namespace: str = "/") -> bool:
        """In the connect handler, and until what it missed was sent: this socket was recovered."""
        return self._recovery is not None and self._recovery.is_held(namespace, sid)

    async def emit(
        self, event: str, data: Any = None, to: Any = None, room: Any = None, **options: Any
    ) -> None:
        """As in python-socketio, but an empty collection of rooms is nobody in ``to``, too."""
        await super().emit(event, data, room=to if to is not None else room, **options)

    async def call(
        self, event: str, data: Any = None, to: Any = None, sid: Any = None, **options: Any
    ) -> Any:
        """As in python-socketio. Raises :class:`ValueError` for an empty collection, too."""
        whom = to if to is not None else sid
        if not checks.names(whom):
            raise ValueError("Cannot use call() to broadcast.")
        return await super().call(event, data, to=whom, **options)

    async def _admit(self, eio_sid: str, namespace: str) -> str | None:
        auth, who = self._connecting.get((eio_sid, namespace), (None, None))
        if self._recovery is None or who is None:
            return None
        return await self._recovery.admit(eio_sid, namespace, auth, who)

    async def _handle_connect(self, eio_sid: str, namespace: str | None, data: Any) -> None:
        key = (eio_sid, namespace or "/")
        try:
            who = await self._identify(self.environ[eio_sid], data)
        except Refused as error:
            packet = self.packet_class(CONNECT_ERROR, data=error.error_args, namespace=key[1])
            await super()._send_packet(eio_sid, packet)
            return
        self._connecting[key] = (data, who)
        try:
            await super()._handle_connect(eio_sid, namespace, data)
        finally:
            del self._connecting[key]
        sid = self.manager.sid_from_eio_sid(eio_sid, key[1])
        if sid is not None and self.is_recovered(sid, key[1]) and self._recovery is not None:
            task = asyncio.get_running_loop().create_task(self._recovery.replay(key[1], sid))
            self._replays.add(task)
            task.add_done_callback(self._replays.discard)

    async def _identify(self, environ: dict[str, Any], auth: Any) -> str | None:
        """Who a client says it is. Raises python-socketio's ``ConnectionRefusedError``."""
        if self._identity is None:
            return ""
        try:
            who: Any = self._identity(environ, auth)
            if inspect.isawaitable(who):
                who = await who
            if who is not None and not isinstance(who, str):
                raise TypeError(f"returned {type(who).__name__}, not str or None")
        except Refused:
            raise
        except Exception as error:
            # One line: every client can bring this about, as often as it likes.
            logger.warning("a client is refused, the identity function failed: %.200r", error)
            raise Refused from None
        return who

    async def _send_packet(self, eio_sid: str, pkt: Any) -> None:
        recovery, namespace = self._recovery, pkt.namespace or "/"
        if pkt.packet_type in (ACK, BINARY_ACK):
            await self.manager.settled()  # what the handler has emitted goes before what it returns
        if pkt.packet_type == CONNECT and recovery is not None:
            auth, who = self._connecting.get((eio_sid, namespace), (None, None))
            aware = who is not None and knows_offsets(self.environ.get(eio_sid, {}), auth)
            pkt.data |= recovery.connected(namespace, pkt.data["sid"], aware=aware, identity=who)
        await super()._send_packet(eio_sid, pkt)

    async def _handle_eio_disconnect(self, eio_sid: str, reason: Any) -> None:
        self._closed.add(eio_sid)
        try:
            for namespace, sid in self.manager.namespaces_of(eio_sid):
                self._gone(sid, namespace, ended=reason == self.reason.SERVER_DISCONNECT)
            await super()._handle_eio_disconnect(eio_sid, reason)
        finally:
            self._closed.discard(eio_sid)

    async def _handle_disconnect(self, eio_sid: str, namespace: str | None, reason: Any = None) -> None:
        sid = self.manager.sid_from_eio_sid(eio_sid, namespace or "/")
        if sid is not None and eio_sid not in self._closed:
            self._gone(sid, namespace or "/", ended=True)
        await super()._handle_disconnect(eio_sid, namespace, reason)

    async def disconnect(self, sid: str, namespace: str | None = None, ignore_queue: bool = False) -> None:
        """As in python-socketio; a socket that the server disconnects is not recovered."""
        if not ignore_queue:
            await self.manager.settled()
        self._gone(sid, namespace or "/", ended=True)
        await super().disconnect(sid, namespace, ignore_queue)

    def _gone(self, sid: str, namespace: str, *, ended: bool) -> None:
        if self._recovery is not None and self.manager.is_connected(sid, namespace):
            self._recovery.gone(namespace, sid, ended=ended)
