"""Broadcasting and the utility methods of Socket.IO, in its own words: ``to``, ``except_``, ``fetch_sockets`` ...

    await manager.to("room1").except_("room2").emit("hello", {"x": 1})
    acks = await manager.to("room1").timeout(2000).emit_with_ack("hello", 1)
    for socket in await manager.in_("room1").fetch_sockets():
        await socket.disconnect()

An operator is immutable; every chaining method returns another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from moorage.cluster.answers import ANSWER_BOUND_MS
from moorage.cluster.wire import RemoteSocket as Described

T = TypeVar("T")


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
        timeout_ms: int,
        *,
        single: bool,
    ) -> tuple[list[Any], bool]: ...

    @abstractmethod
    async def find_sockets(
        self,
        rooms: Collection[str],
        except_: Collection[str],
        namespace: str,
        timeout_ms: int,
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
        self, event: str, args: Sequence[Any], namespace: str, timeout_ms: int | None
    ) -> tuple[list[Any], bool]: ...

    # -- who -------------------------------------------------------------------------------------------
    def of(self, namespace: str) -> BroadcastOperator:
        """All sockets of a namespace."""
        return BroadcastOperator(self, namespace)

    def to(self, room: str | int | Iterable[str | int]) -> BroadcastOperator:
        """The sockets in ``room`` (or in one of several)."""
        return self.of("/").to(room)

    def in_(self, room: str | int | Iterable[str | int]) -> BroadcastOperator:
        """The same as :meth:`to`."""
        return self.to(room)

    def except_(self, room: str | int | Iterable[str | int]) -> BroadcastOperator:
        """All sockets but those in ``room``."""
        return self.of("/").except_(room)

    @property
    def volatile(self) -> BroadcastOperator:
        """All sockets; see :attr:`BroadcastOperator.volatile`."""
        return self.of("/").volatile


@dataclass(frozen=True, slots=True)
class BroadcastOperator:
    """Sockets of ``namespace`` in any of ``rooms`` (none: all) and in none of ``exceptions``, on all nodes."""

    backend: Backend
    namespace: str = "/"
    rooms: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    is_volatile: bool = False
    is_local: bool = False
    timeout_ms: int | None = None

    # -- who -------------------------------------------------------------------------------------------
    def to(self, room: str | int | Iterable[str | int]) -> BroadcastOperator:
        """Those in ``room`` (or in one of several) as well."""
        return replace(self, rooms=self.rooms + _names(room))

    def in_(self, room: str | int | Iterable[str | int]) -> BroadcastOperator:
        """The same as :meth:`to`."""
        return self.to(room)

    def except_(self, room: str | int | Iterable[str | int]) -> BroadcastOperator:
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

    def timeout(self, timeout_ms: int) -> BroadcastOperator:
        """How long acks and answers are waited for. Raises :class:`ValueError` for what is no time."""
        if timeout_ms <= 0:
            raise ValueError("a timeout is a positive number of milliseconds")
        return replace(self, timeout_ms=timeout_ms)

    # -- what ------------------------------------------------------------------------------------------
    async def emit(self, event: str, *args: Any) -> None:
        """Emit to them. Raises :class:`TypeError` or :class:`ValueError` for arguments that cannot be sent."""
        await self.backend.broadcast(
            event,
            args,
            self.rooms,
            self.exceptions,
            self.namespace,
            volatile=self.is_volatile,
            local=self.is_local,
        )

    async def emit_with_ack(self, event: str, *args: Any) -> Answers[Any]:
        """Emit to them and collect the first argument of each ack.

        Socket.IO makes it an error when the timeout is reached; here ``complete`` is False then.
        """
        values, complete = await self.backend.ask_sockets(
            event, args, self.rooms, self.exceptions, self.namespace, self._wait_ms, single=False
        )
        return Answers(values, complete)

    async def fetch_sockets(self) -> Answers[RemoteSocket]:
        """The matching sockets of all nodes; with a node that does not answer, ``complete`` is False."""
        found, complete = await self.backend.find_sockets(
            self.rooms, self.exceptions, self.namespace, self._wait_ms, local=self.is_local
        )
        return Answers([RemoteSocket(self, socket) for socket in found], complete)

    async def sockets_join(self, room: str | int | Iterable[str | int]) -> None:
        """Make them join ``room`` (or several)."""
        await self._move(4, room)

    async def sockets_leave(self, room: str | int | Iterable[str | int]) -> None:
        """Make them leave ``room`` (or several)."""
        await self._move(5, room)

    async def _move(self, number: int, room: str | int | Iterable[str | int]) -> None:
        await self.backend.move_sockets(
            number, self.rooms, self.exceptions, self.namespace, _names(room), local=self.is_local
        )

    async def disconnect_sockets(self, close: bool = False) -> None:
        """Make them leave the namespace; ``close``: end their connections."""
        await self.backend.disconnect_all(
            self.rooms, self.exceptions, self.namespace, close=close, local=self.is_local
        )

    # -- other servers -----------------------------------------------------------------------------------
    async def server_side_emit(self, event: str, *args: Any) -> None:
        """Send an event to the other nodes of the namespace."""
        await self.backend.tell_servers(event, args, self.namespace, None)

    async def server_side_emit_with_ack(self, event: str, *args: Any) -> Answers[Any]:
        """Send an event to the other nodes of the namespace and collect what their handlers return."""
        values, complete = await self.backend.tell_servers(event, args, self.namespace, self._wait_ms)
        return Answers(values, complete)

    @property
    def _wait_ms(self) -> int:
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

    def timeout(self, timeout_ms: int) -> BroadcastOperator:
        """See :meth:`BroadcastOperator.timeout`."""
        return self._operator.timeout(timeout_ms)

    async def emit(self, event: str, *args: Any) -> None:
        """Emit to it, wherever it is."""
        await self._operator.emit(event, *args)

    async def emit_with_ack(self, event: str, *args: Any) -> Any:
        """Emit to it and return the first argument of its ack. Raises :class:`TimeoutError`."""
        operator = self._operator
        values, _ = await operator.backend.ask_sockets(
            event, args, operator.rooms, (), operator.namespace, operator._wait_ms, single=True
        )
        if not values:
            raise TimeoutError("operation has timed out")
        return values[0]

    async def join(self, room: str | int | Iterable[str | int]) -> None:
        """Make it join ``room`` (or several)."""
        await self._operator.sockets_join(room)

    async def leave(self, room: str | int | Iterable[str | int]) -> None:
        """Make it leave ``room`` (or several)."""
        await self._operator.sockets_leave(room)

    async def disconnect(self, close: bool = False) -> None:
        """Make it leave the namespace; ``close``: end its connection."""
        await self._operator.disconnect_sockets(close)


def _names(room: str | int | Iterable[str | int]) -> tuple[str, ...]:
    if isinstance(room, (str, int)):
        return (str(room),)
    return tuple(str(name) for name in room)
