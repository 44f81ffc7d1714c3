"""Socket.IO's broadcasting and utility methods on our manager; which they are and mean is in ``broadcast``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any

from moorage.cluster import checks, wire
from moorage.cluster.broadcast import Backend
from moorage.cluster.changes import Change
from moorage.cluster.fanout import FanOut
from moorage.cluster.requests import Requests
from moorage.cluster.wire import Opts
from moorage.cluster.wire import RemoteSocket as Described
from moorage.cluster.writer import parse_id


class Utilities(FanOut, Backend):
    """What the operators of this manager act on: its own sockets, and the stream for those of others."""

    requests: Requests

    @abstractmethod
    def emit_now(self, *args: Any, **kwargs: Any) -> None:
        """See the manager."""

    @abstractmethod
    def emit_recoverable(self, *args: Any, **kwargs: Any) -> None:
        """See the manager."""

    @abstractmethod
    def append(self, namespace: str, number: int, data: dict[str, Any] | None) -> None:
        """Append an entry to the stream of a namespace, now or as soon as Redis can take it."""

    @abstractmethod
    async def joined(self) -> None:
        """Be a node that can ask others, or know after a bound that this takes longer."""

    # -- other servers ---------------------------------------------------------------------------------
    def on(self, event: str, handler: Callable[..., Any] | None = None) -> Any:
        """Handle an event that other nodes emit to servers; what ``handler`` returns is the answer. A decorator, too.

        It may be a coroutine function. Nodes of ours without a handler answer None at once.
        Raises :class:`TypeError` or :class:`ValueError` for an event that nobody can emit.
        """
        checks.server_event_name(event)
        if handler is None:
            return lambda function: self.on(event, function)
        if not callable(handler):
            raise TypeError(f"the handler of an event must be callable, not {type(handler).__name__}")
        self.requests.handlers[event] = handler
        return handler

    # -- what operators act on ---------------------------------------------------------------------------
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
        """Emit an event."""
        if local or volatile:
            await self.settled()
        if local:
            self.emit_local(event, args, rooms, except_, namespace, volatile=volatile)
        elif volatile:
            self.emit_now(event, args, rooms, except_, namespace, volatile=True)
        else:
            self.emit_recoverable(event, args, rooms, except_, namespace)

    async def ask_sockets(
        self,
        event: str,
        args: Sequence[Any],
        rooms: Collection[str],
        except_: Collection[str],
        namespace: str,
        timeout_ms: float,
        *,
        single: bool,
    ) -> tuple[list[Any], bool]:
        """Emit an event with acks."""
        await self.settled()
        await self.joined()
        return await self.requests.emit_with_ack(
            rooms, event, args, timeout_ms, except_, namespace, single=single
        )

    async def find_sockets(
        self,
        rooms: Collection[str],
        except_: Collection[str],
        namespace: str,
        timeout_ms: float,
        *,
        local: bool,
    ) -> tuple[list[Described], bool]:
        """Sockets of all nodes."""
        if local:
            here = self.matching(namespace, Opts(list(rooms), list(except_)))
            return [Described(**self.describe(namespace, sid)) for sid in here], True
        await self.joined()
        return await self.requests.fetch_sockets(rooms, except_, timeout_ms, namespace)

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
        """Join or leave, here before it returns."""
        await self.settled()
        self.change_rooms(namespace, number, Opts(list(rooms), list(except_)), names)
        if not local:
            self.append(namespace, number, {"opts": wire.opts(rooms, except_), "rooms": list(names)})

    def change_rooms(
        self, namespace: str, number: int, opts: Opts, names: Collection[str], at: bytes | None = None
    ) -> None:
        """The sockets of ``opts`` here join or leave the rooms ``names``, by the entry ``at`` if not by this node."""
        for changes in self.recovery.changes if self.recovery is not None else ():
            if changes.namespace == namespace:
                place = parse_id(at) if at is not None else None
                changes.live(Change(place, number == wire.SOCKETS_JOIN, opts, names))
        change = self.join if number == wire.SOCKETS_JOIN else self.leave
        for sid in self.matching(namespace, opts):
            for name in names:
                change(sid, name, namespace)

    async def disconnect_all(
        self, rooms: Collection[str], except_: Collection[str], namespace: str, *, close: bool, local: bool
    ) -> None:
        """Disconnect, here before it returns."""
        if not local:
            data = {"opts": wire.opts(rooms, except_), "close": close}
            self.append(namespace, wire.DISCONNECT_SOCKETS, data)
        await self.settled()
        for sid, eio_sid in self.matching(namespace, Opts(list(rooms), list(except_))).items():
            await self.disconnect_here(sid, eio_sid, namespace, close)

    async def disconnect_here(self, sid: str, eio_sid: str, namespace: str, close: bool) -> None:
        """One socket of this process leaves the namespace; ``close``: its connection ends."""
        await self.server.disconnect(sid, namespace=namespace, ignore_queue=True)
        if close:
            await self.server.eio.disconnect(eio_sid)

    async def tell_servers(
        self, event: str, args: Sequence[Any], namespace: str, timeout_ms: float | None
    ) -> tuple[list[Any], bool]:
        """Emit to the other nodes."""
        await self.joined()
        return await self.requests.server_side_emit(event, args, timeout_ms, namespace)
