"""Write-only: emits to the sockets of a cluster from a process that serves none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NoReturn, Self

from moorage.cluster import checks, wire
from moorage.cluster.broadcast import Backend
from moorage.cluster.packets import arguments
from moorage.errors import BackplaneUnavailable
from moorage.storage.backplane import Backplane

NO_ANSWERS = "an Emitter only writes: it gets no acks and no answers; ask from a server of the cluster"


class Emitter(Backend):
    """Emits from other processes: a worker, a script, a cron job.

        async with Emitter("redis://localhost") as emitter:
            await emitter.to("room1").emit("hello", {"x": 1})

    ``redis``: a URL, or a :class:`Backplane` that the caller starts and stops. The names must be those of the
    cluster. A coroutine that returns has been taken by Redis; it raises :class:`BackplaneUnavailable` (certainly
    not sent), :class:`BackplaneUnknown` (perhaps sent) or :class:`BackplaneReply`. Nothing is kept for later.

    One that is not entered connects with its first emit, and is closed by :meth:`stop`. After that, as after the
    ``async with``, whatever it is to send raises :class:`RuntimeError`.
    """

    def __init__(
        self,
        redis: str | Backplane,
        *,
        stream_name: str = "socket.io",
        stream_count: int = 1,
        stream_maxlen: int = 200_000,
        channel_prefix: str = "socket.io",
        sharded_pubsub: bool = False,
        ca_file: str | None = None,
    ) -> None:
        checks.of_cluster(redis, stream_name, stream_count, stream_maxlen, channel_prefix, sharded_pubsub)
        self._owns = isinstance(redis, str)
        self._backplane = (
            Backplane(redis, name="socketio:emitter", ca_file=ca_file) if isinstance(redis, str) else redis
        )
        self._started = not self._owns
        self._closed = False
        self._name, self._count, self._maxlen = stream_name, stream_count, stream_maxlen
        self._prefix = channel_prefix
        self._publish = "SPUBLISH" if sharded_pubsub else "PUBLISH"

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.stop()

    async def start(self, timeout_s: float = 5.0) -> None:
        """Connect; done by the first emit otherwise.

        Raises :class:`BackplaneUnavailable` after ``timeout_s`` [s], with the reason, and :class:`RuntimeError` when
        it was closed.
        """
        if self._closed:
            raise RuntimeError("this Emitter was closed; make another one")
        if not self._started:
            up = await self._backplane.start(timeout_s)
            self._started = True
            if not up:
                raise BackplaneUnavailable(f"not connected within {timeout_s:g} s: {self._backplane.trouble}")

    async def stop(self) -> None:
        """Close the connection, for good."""
        self._closed = True
        if self._owns:
            await self._backplane.stop()

    # -- as python-socketio's write-only managers ------------------------------------------------------------
    async def emit(
        self,
        event: str,
        data: Any = None,
        *,
        to: Any = None,
        room: Any = None,
        skip_sid: Any = None,
        namespace: str = "/",
        callback: object = None,
    ) -> None:
        """As python-socketio's ``emit``: a tuple is several arguments. Raises RuntimeError for a ``callback``."""
        if callback is not None:
            raise RuntimeError(NO_ANSWERS)
        checks.event_name(event)
        args = arguments(data)
        operator = self.of(namespace)
        rooms = to if to is not None else room
        if rooms is not None:
            operator = operator.to(rooms)
        if skip_sid is not None:
            operator = operator.except_(skip_sid)
        await operator.emit(event, *args)

    async def call(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises RuntimeError, at once: there is nobody whom the answer could reach."""
        raise RuntimeError(NO_ANSWERS)

    # -- what operators act on -----------------------------------------------------------------------------
    async def broadcast(
        self,
        event: str,
        args: Sequence[Any],
        rooms: Collection[str],
        except_: Collection[str],
        namespace: str,
        *,
        volatile: bool,
        local: bool,
    ) -> None:
        """Append an event."""
        if local:
            raise RuntimeError("an Emitter has no sockets of its own")
        opts = wire.opts(rooms, except_, {"volatile": True} if volatile else None)
        await self._append(namespace, wire.BROADCAST, wire.broadcast(event, args, opts))

    async def move_sockets(
        self,
        number: int,
        rooms: Collection[str],
        except_: Collection[str],
        namespace: str,
        names: Collection[str],
        *,
        local: bool,
    ) -> None:
        """Append a join or a leave."""
        await self._append(namespace, number, {"opts": wire.opts(rooms, except_), "rooms": list(names)})

    async def disconnect_all(
        self, rooms: Collection[str], except_: Collection[str], namespace: str, *, close: bool, local: bool
    ) -> None:
        """Append a disconnect."""
        data = {"opts": wire.opts(rooms, except_), "close": close}
        await self._append(namespace, wire.DISCONNECT_SOCKETS, data)

    async def tell_servers(
        self, event: str, args: Sequence[Any], namespace: str, timeout_ms: float | None
    ) -> tuple[list[Any], bool]:
        """Publish an event to all servers of the namespace."""
        if timeout_ms is not None:
            raise RuntimeError(NO_ANSWERS)
        data = {"packet": [event, *args]}
        payload = wire.encode_payload(wire.EMITTER_UID, namespace, wire.SERVER_SIDE_EMIT, data)
        await self.start()
        await self._backplane.command(self._publish, wire.public_channel(self._prefix, namespace), payload)
        return [], True

    async def ask_sockets(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises RuntimeError, at once."""
        raise RuntimeError(NO_ANSWERS)

    async def find_sockets(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises RuntimeError, at once."""
        raise RuntimeError(NO_ANSWERS)

    async def _append(self, namespace: str, number: int, data: dict[str, Any]) -> None:
        fields = wire.encode_entry(wire.EMITTER_UID, namespace, number, data)
        stream = wire.stream_of(self._name, namespace, self._count)
        await self.start()
        await self._backplane.command("XADD", stream, "MAXLEN", "~", self._maxlen, "*", *fields)
