"""What a row of the matrix is: one file in this folder with one class.

::

    class BriefDisconnect(Scenario):
        name = "brief-disconnect"
        promise = "a call issued while the daemon is away 1.5 s succeeds at once when it is back"
        safe = True

        async def run(self, ctx: Context) -> None:      # load and faults; everything goes into ctx.history
            ...

        def check(self, history: History) -> list[Promise]:   # reads only the history
            ...

``run`` raises when the row could not be played (verdict unknown), never to say that a promise is broken:
that is the business of ``check``, which may run again later on a saved history.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from moorage_chaos.drivers.base import Can, Driver, Setup
from moorage_chaos.faults.base import Faults
from moorage_chaos.history import History
from moorage_chaos.verdict import Promise

if TYPE_CHECKING:
    from moorage_chaos.clients import Clients

Lane = Literal["main", "calm", "idle"]
"""``main``: one row after the other, times are judged. ``calm``: one after the other on a system of its own
beside ``main``; for rows that mostly wait (an outage of 20 s) and load the machine little. ``idle``: all
such rows with the same setup at once on one small system (2 replicas), for rows that only wait (ttl-free,
the 120 s call); no faults."""


@dataclass
class Context:
    """All that a row may use."""

    driver: Driver
    seed: int
    """Of this row: derived from the run's seed and the row's name, so a row alone plays as it does in the
    matrix."""
    random: random.Random
    history: History
    clients: Clients
    """``moorage_chaos.clients.Clients(driver, history, random)``; the runner awaits its ``close()`` after
    the row."""
    faults: Faults
    folder: Path
    """For files of this row, in the report."""
    progress: Callable[[str], None]
    """Tell the live display what is going on, in a few words."""


class Scenario(ABC):
    """A row. Class attributes say what it is; nothing is kept on the instance between runs."""

    name: ClassVar[str]
    """As in the matrix, e.g. ``pod-kill-mid-rpc``; also the name of the file with underscores."""
    promise: ClassVar[str]
    """One sentence for ``--list``."""
    safe: ClassVar[bool]
    """No replica and no Redis is killed, frozen or cut: may be run against something that people use."""
    lane: ClassVar[Lane] = "main"
    on_demand: ClassVar[bool] = False
    """Too long for every run of the matrix: played only when ``--only`` names it."""
    needs: ClassVar[frozenset[Can]] = frozenset()
    """A driver without these says ``unknown: this driver cannot …``."""
    setup: ClassVar[Setup | None] = None
    """None: the run's own (``--replicas``, Redis reached directly, nothing kept)."""
    mutants: ClassVar[tuple[str, ...]] = ()
    """Names in ``moorage_chaos.mutants`` that must turn this row red."""
    bound_s: ClassVar[float] = 60.0
    """Hard limit of ``run``; over it the row is unknown."""

    @abstractmethod
    async def run(self, ctx: Context) -> None:
        """Play the row."""

    @abstractmethod
    def check(self, history: History) -> list[Promise]:
        """Judge it, bite conditions first (those that fail are ``unknown``). No I/O, no clock."""
