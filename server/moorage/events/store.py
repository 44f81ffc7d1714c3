"""Where logs are kept: the interface, its values and its bounds.

Implementations: :class:`~moorage.events.store_redis.RedisStore` and
:class:`~moorage.events.store_memory.MemoryStore`, one behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from moorage.errors import MoorageError
from moorage.events.frames import Event, EventId, Head

PAGE_MAX_BYTES = 1_048_576
"""[bytes] of data in one page; a page holds at least one entry. Sixteen events of the largest size."""

READ_COUNT = 100
"""Entries of one page of a replay: Redis answers it in some 50 µs, and the usual resume needs one."""


class SessionDeleted(MoorageError):
    """The session and its log were deleted."""


class Stored(NamedTuple):
    """Where an event stands. ``id`` None: it was appended and is trimmed already."""

    epoch: str
    id: EventId | None
    seq: int


class Entry(NamedTuple):
    """A kept event; ``event`` is JSON ``{type, data, key?, at}``."""

    id: EventId
    seq: int
    event: bytes


class Span(NamedTuple):
    """Part of a log. ``more``: entries follow the last of ``entries``."""

    head: Head
    entries: list[Entry]
    more: bool


class Store(Protocol):
    """``on_up``: called when it can be reached again and nothing is sure to have been heard meanwhile.
    ``on_dropped(reason)``: a publish was dropped."""

    on_up: Callable[[], None]
    on_dropped: Callable[[str], None]

    @property
    def available(self) -> bool:
        """An append is worth trying now."""

    def next_number(self) -> int:
        """A number for :meth:`append`, larger than all before."""

    async def append(
        self, session_id: str, event: Event, number: int, *, repeat_after: EventId | None = None
    ) -> Stored:
        """Append and tell the other replicas. In the order of calls, if called without an await in between.

        ``repeat_after``: this number was perhaps appended before, after that id; it is not appended twice.
        Raises :class:`SessionDeleted`, BackplaneUnavailable (certainly not appended), BackplaneUnknown,
        BackplaneReply (Redis refused: not appended).
        """

    async def read(self, session_id: str, after: EventId | None, count: int) -> Span:
        """Up to ``count`` entries after an id (None: none); ``count`` 0 reads the head only, without ``oldest``.

        Raises :class:`SessionDeleted`, BackplaneError.
        """

    async def delete(self, session_id: str) -> None:
        """Remove the log; appends and reads raise :class:`SessionDeleted` from now on. Raises BackplaneError."""

    def tell(self, session_id: str, event: bytes) -> None:
        """Tell the other replicas an event without id. Never waits, never raises; what is lost is counted."""
