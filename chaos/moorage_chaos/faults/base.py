"""What a fault is: inject, undo, and evidence that it bit.

A scenario uses them through ``ctx.faults``::

    evidence = await ctx.faults.inject(Kill(replica))        # dead on return; `undo` launches it again
    async with ctx.faults.hold(PauseReplica(replica)):       # undone at the end of the block, whatever
    happens
        await asyncio.sleep(10)

Before a fault acts, its undo is in the journal on disk, so that ``run_all.py recover`` can undo what a
harness that died left behind. What is still in force when a row ends is undone by the runner.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Protocol

from moorage_chaos.drivers.base import Driver, Evidence
from moorage_chaos.history import History


class Fault(ABC):
    """One thing that can be done to a system."""

    kind: ClassVar[str]
    """Slug for histories: ``kill``, ``pause-replica``, ``redis-restart`` …"""

    @property
    @abstractmethod
    def target(self) -> str:
        """Whom it hits: a replica id, a link, ``redis``."""

    @abstractmethod
    async def inject(self, driver: Driver) -> Evidence:
        """Do it; on return it has bitten. Raises DriverError if it did not."""

    @abstractmethod
    async def undo(self, driver: Driver) -> None:
        """Take it back. Safe to call twice, and when ``inject`` failed half-way."""

    def undo_record(self) -> dict[str, Any] | None:
        """What ``recover`` must do if the harness dies while this is in force, as JSON; None: ending the
        processes of the system (always in the journal) is enough. ``{"do": "cont", "pid": …, "start": …}``
        wakes a process."""
        return None


class Journal(Protocol):
    """Undo records on disk."""

    def write(self, record: dict[str, Any]) -> int:
        """Append and fsync; returns a number for :meth:`done`."""

    def done(self, number: int) -> None: ...


class Faults:
    """The faults of one row: journal first, then act, and every step in the history as operation
    ``fault``.

    ``only``: the numbers of those to inject, counted from 1 in the order the row asks for them (None: all). The others
    are noted as ``fault-left-out`` and not done: the schedule stays what the seed made it.
    """

    def __init__(
        self, driver: Driver, history: History, journal: Journal, only: Collection[int] | None = None
    ) -> None:
        self._driver = driver
        self._history = history
        self._journal = journal
        self._only = only
        self._asked = 0
        self._active: dict[Fault, int | None] = {}

    @property
    def active(self) -> list[Fault]:
        """In force now, oldest first."""
        return list(self._active)

    async def inject(self, fault: Fault) -> Evidence:
        """Raises DriverError if the fault did not bite; it is then undone at the end of the row all the
        same."""
        self._asked += 1
        if self._only is not None and self._asked not in self._only:
            note = self._history.note(
                "fault-left-out", number=self._asked, kind=fault.kind, replica=fault.target
            )
            return Evidence(note.t, fault.kind, fault.target)
        record = fault.undo_record()
        self._active[fault] = self._journal.write(record) if record else None
        operation = self._history.begin("fault", kind=fault.kind, replica=fault.target)
        try:
            evidence = await fault.inject(self._driver)
        except BaseException as error:
            operation.info(error=repr(error))
            raise
        operation.ok(**evidence.as_value())
        return evidence

    async def undo(self, fault: Fault) -> None:
        """Take one back; recorded as operation ``undo``. Nothing happens if it is not in force."""
        if fault not in self._active:
            return
        operation = self._history.begin("undo", kind=fault.kind, replica=fault.target)
        try:
            await fault.undo(self._driver)
        except BaseException as error:
            operation.info(error=repr(error))
            raise
        number = self._active.pop(fault)
        if number is not None:
            self._journal.done(number)
        operation.ok()

    @asynccontextmanager
    async def hold(self, fault: Fault) -> AsyncIterator[Evidence]:
        """The fault is in force inside the block."""
        evidence = await self.inject(fault)
        try:
            yield evidence
        finally:
            await self.undo(fault)

    async def undo_all(self) -> None:
        """Take back what is in force, newest first; all are tried, the first error is raised at the end."""
        first: BaseException | None = None
        for fault in reversed(self.active):
            try:
                await self.undo(fault)
            except Exception as error:
                first = first or error
        if first is not None:
            raise first
