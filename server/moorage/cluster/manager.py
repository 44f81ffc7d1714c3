"""python-socketio's face of the cluster: what happens here happens on all nodes.

What is sent to sockets is written to those of this process at once and appended to the stream afterwards, so a
slow Redis never delays local delivery. Counted updates go through the stream first, for one order everywhere, and
with connection state recovery :meth:`RedisStreamsManager.emit` does, too.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Literal

from moorage.cluster import checks, counted, wire
from moorage.cluster.carriers import PubSub, Stream
from moorage.cluster.elsewhere import Elsewhere
from moorage.cluster.journal import restate_for_ever
from moorage.cluster.loopback import Loopback
from moorage.cluster.packets import arguments
from moorage.cluster.recovery import Recovery
from moorage.cluster.requests import Requests
from moorage.cluster.sessions import Marker
from moorage.cluster.stream import StreamReader
from moorage.cluster.streamlog import StreamLog
from moorage.cluster.writer import StreamWriter
from moorage.storage.backplane import Backplane

logger = logging.getLogger(__name__)

CALL_TIMEOUT_MS = 60_000
"""How long an ``emit`` with a callback waits for acks of other nodes; that of python-socketio's ``call``."""

START_S = 1.0
"""[s] How long after the start clients and questions wait for this node to have joined; with Redis away, in vain."""


class RedisStreamsManager(Elsewhere):
    """Client manager for a cluster of python-socketio and Node servers on one Redis.

    ``redis``: a URL, or a :class:`Backplane` that the caller starts and stops. ``namespaces`` are joined from
    :meth:`start` on; another one as long as it has sockets here. ``stream_maxlen`` [entries] is the MAXLEN ~ of
    the stream, ``stream_read_count`` [entries] the COUNT of a read; names and counts must be equal on all nodes.
    ``sharded_pubsub`` is the adapter's ``useShardedPubSub``. ``compat="0.2"`` speaks to adapters of 0.2.x and needs
    no pub/sub: questions and answers go by the stream. ``socket_data(namespace, sid)``, if set, gives what other
    nodes see as a socket's data. With ``recovery_secret``, equal on all nodes, clients are recovered within
    ``recovery_window_ms`` (0: never) if the server takes part: :class:`moorage.cluster.server.AsyncServer`, or
    Moorage's own.

        server = socketio.AsyncServer(client_manager=RedisStreamsManager("redis://localhost"))

    The first client, emit or question starts it, or :meth:`start`; call :meth:`stop` after the last one.
    """

    def __init__(
        self,
        redis: str | Backplane,
        *,
        namespaces: Collection[str] = ("/",),
        stream_name: str = "socket.io",
        stream_count: int = 1,
        stream_maxlen: int = 200_000,
        stream_read_count: int = 2000,
        channel_prefix: str = "socket.io",
        sharded_pubsub: bool = False,
        compat: Literal["0.3", "0.2"] = "0.3",
        ca_file: str | None = None,
        recovery_secret: str | None = None,
        recovery_window_ms: int = 120_000,
    ) -> None:
        checks.of_cluster(redis, stream_name, stream_count, stream_maxlen, channel_prefix, sharded_pubsub)
        checks.of_server(namespaces, stream_read_count, compat, recovery_secret, recovery_window_ms)
        super().__init__()
        self.uid = wire.new_uid()
        """This node. Node's adapter has one for each namespace; one for all is the same on the wire."""
        self.ignored = 0
        """Entries of the stream that concern nobody here, by type or namespace."""
        self._owns_backplane = isinstance(redis, str)
        self.backplane = (
            Backplane(redis, name=f"socketio:{self.uid}", ca_file=ca_file)
            if isinstance(redis, str)
            else redis
        )
        self._fixed = frozenset(namespaces)
        self._stream_name, self._stream_count, self._maxlen = stream_name, stream_count, stream_maxlen
        names = [stream_name] if stream_count == 1 else [f"{stream_name}-{i}" for i in range(stream_count)]
        self.writer = StreamWriter(self.backplane, uid=self.uid, maxlen=stream_maxlen)
        self.reader = StreamReader(
            self.backplane, names, uid=self.uid, count=stream_read_count, deliver=self._deliver
        )
        self._by_stream = Stream(self.append, uid=self.uid) if compat == "0.2" else None
        carrier = self._by_stream or PubSub(
            self.backplane, uid=self.uid, prefix=channel_prefix, sharded=sharded_pubsub
        )
        self.requests = Requests(carrier, self, uid=self.uid)
        self._loopback = Loopback(self.backplane, self.writer, self._comes_back)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._starting: asyncio.Task[bool] | None = None
        self._stopped = False
        self._patience = 0.0
        if recovery_secret and recovery_window_ms:
            window_s = recovery_window_ms / 1000
            log = StreamLog(
                self.backplane, self.reader, self._stream, window_s=window_s, limit=stream_maxlen + 1000
            )
            self.recovery = Recovery(
                self,
                log,
                node=self.uid,
                secret=recovery_secret,
                window_ms=recovery_window_ms,
                append=self._mark,
            )

    # -- life ------------------------------------------------------------------------------------------
    async def start(self, timeout_s: float = 5.0) -> bool:
        """Join the cluster. True: what the others send from now on arrives here.

        False: not within ``timeout_s`` seconds; it goes on trying for ever. Also after :meth:`stop`.
        """
        self._stopped = False
        starting = self._begin()
        done, _ = await asyncio.wait([starting], timeout=timeout_s)
        if not done:
            starting.add_done_callback(self._ended)
        return bool(done) and not starting.cancelled() and starting.result()

    def initialize(self) -> None:
        """python-socketio's hook at the first client: starts what was not started, as the first emit does."""
        if self._starting is None and not self._stopped:
            self._begin().add_done_callback(self._ended)

    def _begin(self) -> asyncio.Task[bool]:
        if self._starting is None:
            loop = asyncio.get_running_loop()
            self._patience = loop.time() + START_S
            self.writer.start()  # from here on a stop writes what was emitted before
            self._starting = loop.create_task(self._join_cluster())
        return self._starting

    async def _join_cluster(self) -> bool:
        """Ends when the others reach this node, however long that takes. False: Redis refuses a subscription."""
        try:
            if self._owns_backplane:
                await self.backplane.start(0)
            self.reader.start()
            waits: list[asyncio.Future[Any]] = []
            for namespace in {*self._fixed, *self.get_namespaces()}:
                waits += self._open(namespace)
            await self.reader.placed.wait()
            self._loopback.start()
            if self.recovery is not None:
                self._spawn(self._tell_for_ever(self.recovery))
            return all(error is None for error in await asyncio.gather(*waits, return_exceptions=True))
        except Exception:
            self._starting = None
            await self.stop()
            raise

    async def joined(self) -> None:
        """Be a node that can ask others, or know after :data:`START_S` that this takes longer."""
        self.initialize()
        if self._starting is not None and not self._starting.done():
            left = self._patience - asyncio.get_running_loop().time()
            await asyncio.wait([self._starting], timeout=max(0.0, left))

    async def stop(self) -> None:
        """Leave the cluster: what was emitted is written if Redis takes it within a second, then all is closed.

        What is not written then is counted, and told by one warning. What is emitted later reaches the sockets of this
        process only, until :meth:`start` is called again.
        """
        if self.recovery is not None:
            self.recovery.stop()
        starting, self._starting, self._stopped = self._starting, None, True
        self._loopback.stop()
        await self.requests.stop()
        await self.writer.stop()
        await self.reader.stop()
        tasks = {*self._tasks, *([starting] if starting is not None else ())}
        if tasks:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if self._owns_backplane:
            await self.backplane.stop()

    async def _tell_for_ever(self, recovery: Recovery) -> None:
        await restate_for_ever(recovery.journal, lambda: {*self._fixed, *self.get_namespaces()})

    def _mark(self, namespace: str, data: dict[str, Any]) -> None:
        if self._starting is not None:
            self.append(namespace, wire.MARKER, data)

    def _comes_back(self, stream: str) -> bool:
        return self.reader.origin(stream) is not None

    async def settled(self) -> None:
        """See :meth:`Loopback.settled`."""
        await self._loopback.settled()

    def _open(self, namespace: str) -> list[asyncio.Future[None]]:
        stream = self._stream(namespace)
        if stream.startswith(f"{self._stream_name}--"):
            logger.warning(
                "Node servers write namespace %s to stream %s but do not read it", namespace, stream
            )
        self.reader.add(stream)
        return self.requests.open(namespace)

    def _stream(self, namespace: str) -> str:
        return wire.stream_of(self._stream_name, namespace, self._stream_count)

    def _spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("a task of the cluster manager failed", exc_info=task.exception())

    # -- namespaces come and go with their sockets -------------------------------------------------------
    def basic_pre_connect(self, eio_sid: str, namespace: str, sid: str | None = None) -> str | None:
        """See :class:`LocalManager`; the first socket of a namespace makes us a node of it."""
        new = namespace not in self._fixed and namespace not in self.get_namespaces()
        result = super().basic_pre_connect(eio_sid, namespace, sid)
        if new and result is not None and self._starting is not None:
            self._open(namespace)
        return result

    def basic_disconnect(self, sid: str, namespace: str, **kwargs: Any) -> None:
        """See :class:`LocalManager`; the last socket of a namespace takes us out of it."""
        super().basic_disconnect(sid, namespace, **kwargs)
        if namespace not in self._fixed and namespace not in self.get_namespaces():
            self.requests.close(namespace)

    # -- emit ------------------------------------------------------------------------------------------
    def emit_now(
        self,
        event: str,
        args: Sequence[Any],
        rooms: Collection[str],
        except_: Collection[str] = (),
        namespace: str = "/",
        *,
        volatile: bool = False,
    ) -> None:
        """Deliver here at once and on the other nodes by the stream; never waits, never raises for Redis.

        While Redis is away, entries are kept and sent later in order, within the bounds of
        :mod:`moorage.cluster.writer`; volatile ones are not.
        Raises :class:`TypeError` or :class:`ValueError` for arguments that cannot be sent, before anything is.
        """
        if rooms and all(self.is_sid_room(namespace, room) for room in rooms):
            self.emit_local(event, args, rooms, except_, namespace, volatile=volatile)
            return
        flags = (
            {"volatile": True} if volatile else {wire.FLEETING: True} if self.recovery is not None else None
        )
        to = wire.opts(rooms, except_, flags)
        fields = wire.encode_entry(self.uid, namespace, wire.BROADCAST, wire.broadcast(event, args, to))
        self.initialize()
        self.emit_local(event, args, to["rooms"], to["except"], namespace, volatile=volatile)
        self.writer.append(self._stream(namespace), fields, volatile=volatile)

    def emit_recoverable(
        self,
        event: str,
        args: Sequence[Any],
        rooms: Collection[str],
        except_: Collection[str] = (),
        namespace: str = "/",
    ) -> None:
        """Deliver on all nodes, this one too, in the order of the stream; clients that were away get it later.

        Without recovery the same as :meth:`emit_now`. Never waits; raises as that one does.
        """
        if self.recovery is None:
            self.emit_now(event, args, rooms, except_, namespace)
            return
        to = wire.opts(rooms, except_)
        fields = wire.encode_entry(self.uid, namespace, wire.BROADCAST, wire.broadcast(event, args, to))

        def deliver() -> None:
            self.emit_local(event, args, to["rooms"], to["except"], namespace)

        self.initialize()
        self._loopback.send(self._stream(namespace), fields, deliver)

    async def emit_counted(
        self,
        counter: str,
        event: str,
        payload: dict[str, Any],
        rooms: Collection[str],
        except_: Collection[str] = (),
    ) -> int:
        """Set ``payload["seq"]`` to the next number of ``counter`` (dense, from 1) and return it.

        Counted and appended in one atomic step; all nodes, this one too, deliver it when their reader gets
        there, in the order of the numbers. Raises :class:`BackplaneUnavailable`, :class:`BackplaneUnknown` (it
        may have happened), :class:`BackplaneReply`, or :class:`TypeError` for a payload that JSON cannot hold.
        """
        stream = self._stream("/")
        seq = await self.backplane.command(
            *counted.command(counter, event, payload, rooms, except_, stream=stream, maxlen=self._maxlen)
        )
        payload["seq"] = seq
        return int(seq)

    async def emit(
        self,
        event: str,
        data: Any = None,
        namespace: str = "/",
        room: Any = None,
        skip_sid: Any = None,
        callback: Callable[..., Any] | None = None,
        to: Any = None,
        **kwargs: Any,
    ) -> None:
        """As in python-socketio; never waits for Redis. ``ignore_queue=True``: this process only.

        An empty collection of rooms is nobody. ``callback`` is called for each ack; of a socket on a Node server only
        the first argument arrives. Raises :class:`TypeError` or :class:`ValueError` for what cannot be sent.
        """
        checks.event_name(event)
        chosen = to if to is not None else room
        rooms, skip = checks.names(chosen), checks.names(skip_sid)
        if chosen is not None and not rooms:
            return
        here = bool(rooms) and all(self.is_sid_room(namespace, name) for name in rooms)
        if here and callback is None and self.recovery is not None:
            here = all(name in self.recovery.unaware for name in rooms)  # else it may be missed
        alone = bool(kwargs.get("ignore_queue"))
        if not alone and (here or callback is not None):
            await self.settled()
        if here or alone:
            await super().emit(event, data, namespace, room=rooms or None, skip_sid=skip, callback=callback)
            return
        args = arguments(data)
        if callback is None:
            self.emit_recoverable(event, args, rooms, skip, namespace)
        else:

            def acked(*values: Any) -> None:
                result = callback(*values)
                if inspect.iscoroutine(result):
                    self._spawn(result)

            await self.joined()
            asked = self.requests.emit_with_ack(
                rooms, event, args, CALL_TIMEOUT_MS, skip, namespace, on_ack=acked
            )
            self._spawn(asked)
        await asyncio.sleep(0)

    # -- to the stream ---------------------------------------------------------------------------------
    def append(self, namespace: str, number: int, data: dict[str, Any] | None) -> None:
        """Append an entry to the stream of a namespace, now or as soon as Redis can take it."""
        self.initialize()
        self.writer.append(self._stream(namespace), wire.encode_entry(self.uid, namespace, number, data))

    # -- from the stream -------------------------------------------------------------------------------
    def _deliver(self, entry_id: bytes, message: wire.Message) -> None:
        namespace = message.nsp
        own = message.uid == self.uid
        if own and not self._loopback.returned(message.tag):
            return
        if message.type == wire.MARKER and self.recovery is not None:
            marker = message.body()
            if isinstance(marker, Marker):
                self.recovery.told(namespace, marker)
            return
        if self._by_stream is not None and not own and self._by_stream.read(message):
            return
        if namespace not in self.get_namespaces():
            self.ignored += 1
            return
        body = message.body()
        if isinstance(body, wire.Broadcast):
            if not self.deliver(namespace, body, entry_id):
                self.reader.poison(entry_id, wire.Malformed("packet.data"))
        elif isinstance(body, wire.SocketsRooms):
            self.change_rooms(namespace, message.type, body.opts, body.room_names, entry_id)
        elif isinstance(body, wire.DisconnectSockets):
            for sid, eio_sid in self.matching(namespace, body.opts).items():
                self._spawn(self.disconnect_here(sid, eio_sid, namespace, bool(body.close)))
        elif isinstance(body, wire.Malformed) and wire.BROADCAST <= message.type <= wire.DISCONNECT_SOCKETS:
            self.reader.poison(entry_id, body)
        else:
            self.ignored += 1  # heartbeats and requests of nodes of format 0.2.x
