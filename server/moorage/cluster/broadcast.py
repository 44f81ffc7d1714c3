"""Broadcasting and the utility methods of Socket.IO, in its own words: ``to``, ``except_``, ``fetch_sockets`` ...

    await manager.to("room1").except_("room2").emit("hello", {"x": 1})
    acks = await manager.to("room1").timeout(2000).emit_with_ack("hello", 1)
    for socket in await manager.in_("room1").fetch_sockets():
        await socket.disconnect()

An operator is immutable; every chaining method returns another one. Wrong arguments raise :class:`TypeError` or
:class:`ValueError` before anything is sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from moorage.cluster import checks
from moorage.cluster.answers import ANSWER_BOUND_MS
from moorage.cluster.wire import RemoteSocket as Described

T = TypeVar("T")

Rooms = str | int | Iterable[str | int]
"""A room or several; an empty collection is none of them, so nobody."""


class Answers(list[T]):
    """What came, as a list. ``complete``: everybody who was asked has answered; else it is a partial result."""

    complete: bool

    def __init__(self, values: Iterable[T], complete: bool) -> None:
        super().__init__(values)
        self.complete = complete


class Backend(ABC):
    """What an operator acts on; coroutines do not wait for other nodes unless they return something."""

    @abstractmethod
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
    ) -> None: ...

    @abstractmethod
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
    ) -> tuple[list[Any], bool]: ...

    @abstractmethod
    async def find_sockets(
        self,
        rooms: Collection[str],
        except_: Collection[str],
        namespace: str,
        timeout_ms: float,
        *,
        local: bool,
    ) -> tuple[list[Described], bool]: ...

    @abstractmethod
    async def move_sockets(
        self,
        number: int,
        rooms: Collection[str],
        except_: Collection[str],
        namespace: str,
        names: Collection[str],
        *,
        local: bool,
    ) -> None: ...

    @abstractmethod
    async def disconnect_all(
        self, rooms: Collection[str], except_: Collection[str], namespace: str, *, close: bool, local: bool
    ) -> None: ...

    @abstractmethod
    async def tell_servers(
        self, event: str, args: Sequence[Any], namespace: str, timeout_ms: float | None
    ) -> tuple[list[Any], bool]: ...

    # -- who -------------------------------------------------------------------------------------------
    def of(self, namespace: str) -> BroadcastOperator:
        """All sockets of a namespace."""
        checks.namespace_name(namespace)
        return BroadcastOperator(self, namespace)

    def to(self, room: Rooms) -> BroadcastOperator:
        """The sockets in ``room`` (or in one of several; of none: nobody)."""
        return self.of("/").to(room)

    def in_(self, room: Rooms) -> BroadcastOperator:
        """The same as :meth:`to`."""
        return self.to(room)

    def except_(self, room: Rooms) -> BroadcastOperator:
        """All sockets but those in ``room``."""
        return self.of("/").except_(room)

    @property
    def volatile(self) -> BroadcastOperator:
        """All sockets; see :attr:`BroadcastOperator.volatile`."""
        return self.of("/").volatile

    @property
    def local(self) -> BroadcastOperator:
        """All sockets of this process."""
        return self.of("/").local

    def timeout(self, timeout_ms: float) -> BroadcastOperator:
        """All sockets; see :meth:`BroadcastOperator.timeout`."""
        return self.of("/").timeout(timeout_ms)

    # -- what, with all sockets of the default namespace ---------------------------------------------------
    async def emit_with_ack(self, event: str, *args: Any) -> Answers[Any]:
        """See :meth:`BroadcastOperator.emit_with_ack`."""
        return await self.of("/").emit_with_ack(event, *args)

    async def fetch_sockets(self) -> Answers[RemoteSocket]:
        """All sockets of all nodes."""
        return await self.of("/").fetch_sockets()

    async def sockets_join(self, room: Rooms) -> None:
        """Make all sockets join ``room`` (or several)."""
        await self.of("/").sockets_join(room)

    async def sockets_leave(self, room: Rooms) -> None:
        """Make all sockets leave ``room`` (or several)."""
        await self.of("/").sockets_leave(room)

    async def disconnect_sockets(self, close: bool = False) -> None:
        """Make all sockets leave the default namespace; ``close``: end their connections."""
        await self.of("/").disconnect_sockets(close)

    async def server_side_emit(self, event: str, *args: Any) -> None:
        """Send an event to the other nodes."""
        await self.of("/").server_side_emit(event, *args)

    async def server_side_emit_with_ack(self, event: str, *args: Any) -> Answers[Any]:
        """Send an event to the other nodes and collect what their handlers return."""
        return await self.of("/").server_side_emit_with_ack(event, *args)


@dataclass(frozen=True, slots=True)
class BroadcastOperator:
    """Sockets of ``namespace`` in any of ``rooms`` and in none of ``exceptions``, on all nodes.

    ``rooms`` is None for all sockets, and empty for none: ``to([])`` was asked for.
    """

    backend: Backend
    namespace: str = "/"
    rooms: tuple[str, ...] | None = None
    exceptions: tuple[str, ...] = ()
    is_volatile: bool = False
    is_local: bool = False
    timeout_ms: float | None = None

    # -- who -------------------------------------------------------------------------------------------
    def to(self, room: Rooms) -> BroadcastOperator:
        """Those in ``room`` (or in one of several) as well."""
        return replace(self, rooms=(self.rooms or ()) + _names(room))

    def in_(self, room: Rooms) -> BroadcastOperator:
        """The same as :meth:`to`."""
        return self.to(room)

    def except_(self, room: Rooms) -> BroadcastOperator:
        """But those in ``room`` (or in one of several); a sid is a room, too."""
        return replace(self, exceptions=self.exceptions + _names(room))

    @property
    def volatile(self) -> BroadcastOperator:
        """The event may be lost where a client is not ready to receive; it is not recovered."""
        return replace(self, is_volatile=True)

    @property
    def local(self) -> BroadcastOperator:
        """Only the sockets of this process."""
        return replace(self, is_local=True)

    def timeout(self, timeout_ms: float) -> BroadcastOperator:
        """How long acks and answers are waited for [ms]."""
        checks.timeout(timeout_ms)
        return replace(self, timeout_ms=timeout_ms)

    # -- what ------------------------------------------------------------------------------------------
    async def emit(self, event: str, *args: Any) -> None:
        """Emit to them. Raises :class:`TypeError` or :class:`ValueError` for arguments that cannot be sent."""
        checks.event_name(event)
        if self.rooms == ():
            return
        await self.backend.broadcast(
            event,
            args,
            self.rooms or (),
            self.exceptions,
            self.namespace,
            volatile=self.is_volatile,
            local=self.is_local,
        )

    async def emit_with_ack(self, event: str, *args: Any) -> Answers[Any]:
        """Emit to them and collect the first argument of each ack.

        Socket.IO makes it an error when the timeout is reached; here ``complete`` is False then.
        """
        checks.event_name(event)
        if self.rooms == ():
            return Answers([], True)
        values, complete = await self.backend.ask_sockets(
            event, args, self.rooms or (), self.exceptions, self.namespace, self._wait_ms, single=False
        )
        return Answers(values, complete)

    async def fetch_sockets(self) -> Answers[RemoteSocket]:
        """The matching sockets of all nodes; with a node that does not answer, ``complete`` is False."""
        if self.rooms == ():
            return Answers([], True)
        found, complete = await self.backend.find_sockets(
            self.rooms or (), self.exceptions, self.namespace, self._wait_ms, local=self.is_local
        )
        return Answers([RemoteSocket(self, socket) for socket in found], complete)

    async def sockets_join(self, room: Rooms) -> None:
        """Make them join ``room`` (or several)."""
        await self._move(4, room)

    async def sockets_leave(self, room: Rooms) -> None:
        """Make them leave ``room`` (or several)."""
        await self._move(5, room)

    async def _move(self, number: int, room: Rooms) -> None:
        names = _names(room)
        if self.rooms == ():
            return
        await self.backend.move_sockets(
            number, self.rooms or (), self.exceptions, self.namespace, names, local=self.is_local
        )

    async def disconnect_sockets(self, close: bool = False) -> None:
        """Make them leave the namespace; ``close``: end their connections."""
        if self.rooms == ():
            return
        await self.backend.disconnect_all(
            self.rooms or (), self.exceptions, self.namespace, close=close, local=self.is_local
        )

    # -- other servers -----------------------------------------------------------------------------------
    async def server_side_emit(self, event: str, *args: Any) -> None:
        """Send an event to the other nodes of the namespace."""
        checks.server_event_name(event)
        await self.backend.tell_servers(event, args, self.namespace, None)

    async def server_side_emit_with_ack(self, event: str, *args: Any) -> Answers[Any]:
        """Send an event to the other nodes of the namespace and collect what their handlers return."""
        checks.server_event_name(event)
        values, complete = await self.backend.tell_servers(event, args, self.namespace, self._wait_ms)
        return Answers(values, complete)

    @property
    def _wait_ms(self) -> float:
        return self.timeout_ms or ANSWER_BOUND_MS


class RemoteSocket:
    """A socket of some node of the cluster, as :meth:`BroadcastOperator.fetch_sockets` found it.

    ``id``, ``rooms`` (its own among them) and ``data`` are as they were then.
    """

    def __init__(self, found_by: BroadcastOperator, described: Described) -> None:
        self.id = described.id
        self.rooms = frozenset(str(room) for room in described.rooms)
        self.data = described.data
        self._operator = BroadcastOperator(
            found_by.backend, found_by.namespace, (self.id,), timeout_ms=found_by.timeout_ms
        )

    def __repr__(self) -> str:
        return f"RemoteSocket({self.id!r})"

    def timeout(self, timeout_ms: float) -> RemoteSocket:
        """The same socket; its acks are waited for so long [ms]."""
        return self._by(self._operator.timeout(timeout_ms))

    @property
    def volatile(self) -> RemoteSocket:
        """The same socket; see :attr:`BroadcastOperator.volatile`."""
        return self._by(self._operator.volatile)

    def _by(self, operator: BroadcastOperator) -> RemoteSocket:
        same = copy(self)
        same._operator = operator
        return same

    async def emit(self, event: str, *args: Any) -> None:
        """Emit to it, wherever it is."""
        await self._operator.emit(event, *args)

    async def emit_with_ack(self, event: str, *args: Any) -> Any:
        """Emit to it and return the first argument of its ack. Raises :class:`TimeoutError`."""
        checks.event_name(event)
        operator = self._operator
        values, _ = await operator.backend.ask_sockets(
            event, args, (self.id,), (), operator.namespace, operator._wait_ms, single=True
        )
        if not values:
            raise TimeoutError("operation has timed out")
        return values[0]

    async def join(self, room: Rooms) -> None:
        """Make it join ``room`` (or several)."""
        await self._operator.sockets_join(room)

    async def leave(self, room: Rooms) -> None:
        """Make it leave ``room`` (or several)."""
        await self._operator.sockets_leave(room)

    async def disconnect(self, close: bool = False) -> None:
        """Make it leave the namespace; ``close``: end its connection."""
        await self._operator.disconnect_sockets(close)


def _names(room: Rooms) -> tuple[str, ...]:
    if room is None:
        raise TypeError("a room is a name or a collection of names, not None")
    return tuple(checks.names(room))
