"""One lane: a process that plays its rows on a system of its own and tells the runner about it.

``python -m moorage_chaos.lane`` reads one JSON line from stdin (:class:`Order`), then ``go`` (start to play) and
``stop``; the end of stdin means stop too, so a lane never outlives the runner. It writes JSON lines to stdout::

    {"event": "system", "text"}                 what the system is doing
    {"event": "note", "text"}                   a warning for the person who looks
    {"event": "built"}                          the first system is up, it waits for `go`
    {"event": "row", "row"}                     the row begins
    {"event": "progress", "row", "text"}
    {"event": "result", "row", "result": …}     as in the report
    {"event": "beat"}                           its event loop turns
    {"event": "halt", "reason"}                 nothing more is played here, nor should it be elsewhere
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import uvloop

from moorage_chaos import mutants
from moorage_chaos.drivers.base import CannotBuild, DriverError, Setup
from moorage_chaos.drivers.kinds import make
from moorage_chaos.drivers.local import ENTRY, PRELOAD, LocalConfig
from moorage_chaos.faults.journal import FileJournal
from moorage_chaos.play import NotRestored, Run, play
from moorage_chaos.scenarios import discover
from moorage_chaos.scenarios.base import Scenario
from moorage_chaos.verdict import RowResult

BEAT_S = 1.0
"""How often a lane says that its loop turns."""
IDLE_REPLICAS = 2
"""Rows that only wait need no more, and the others need the cores."""


@dataclass(frozen=True)
class Order:
    """What a lane is to play."""

    lane: str
    rows: list[str]
    seed: int
    driver: str
    replicas: int
    folder: str
    mutant: str | None
    redis_url: str | None
    versions: dict[str, str]
    entry: str
    rows_folder: str | None
    faults: list[int] | None = None
    kubernetes: dict[str, Any] | None = None

    def line(self) -> bytes:
        return json.dumps(asdict(self)).encode() + b"\n"


def say(**message: Any) -> None:
    """One line to the runner."""
    os.write(_OUT, json.dumps(message, default=str).encode() + b"\n")


_OUT = 1


class Lane:
    """Plays an :class:`Order`."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.go = asyncio.Event()
        self.stop = asyncio.Event()
        folder = Path(order.folder)
        only = tuple(order.faults) if order.faults is not None else None
        self._run = Run(order.seed, order.driver, folder, order.mutant, order.versions, only)
        self._journal = FileJournal()
        config = LocalConfig(
            folder / "logs",
            self._journal,
            order.lane,
            mutant=order.mutant,
            redis_url=order.redis_url,
            entry=order.entry,
            preload=PRELOAD if order.entry == ENTRY else (order.entry.partition(":")[0],),
        )
        self._driver = make(order.driver, config, order.kubernetes, lambda text: say(event="note", text=text))
        rows = discover(Path(order.rows_folder) if order.rows_folder else None)
        self._rows = [rows[name]() for name in order.rows]

    def _setup(self, row: Scenario) -> Setup:
        count = min(IDLE_REPLICAS, self.order.replicas) if self.order.lane == "idle" else self.order.replicas
        return row.setup if row.setup is not None else Setup(replicas=count)

    async def run(self) -> None:
        try:
            await self._groups()
        finally:
            await self._driver.stop()
            self._journal.close()

    async def _groups(self) -> None:
        """Rows with equal setups one after the other, so that a system is built once for them."""
        kinds: list[Setup] = []
        for row in self._rows:
            if self._setup(row) not in kinds:
                kinds.append(self._setup(row))
        ordered = sorted(self._rows, key=lambda row: kinds.index(self._setup(row)))
        for index, group in groupby(ordered, key=lambda row: kinds.index(self._setup(row))):
            rows = [row for row in group if self._able(row)]
            if not rows or self.stop.is_set():
                continue
            say(event="system", text=f"building {kinds[index].replicas} replicas")
            try:
                await self._driver.start(kinds[index])
            except CannotBuild as error:
                for row in rows:
                    self._unknown(row, str(error))
                continue
            except DriverError as error:
                say(event="halt", reason=f"the system could not be built: {error}")
                return
            say(event="system", text="")
            if not self.go.is_set():
                say(event="built")
                await self.go.wait()
            if not await (self._together(rows) if self.order.lane == "idle" else self._in_turn(rows)):
                return

    def _able(self, row: Scenario) -> bool:
        missing = row.needs - self._driver.can
        if missing:
            self._unknown(row, f"this driver cannot do {', '.join(sorted(missing))}")
        return not missing

    @staticmethod
    def _unknown(row: Scenario, reason: str) -> None:
        result = RowResult(row.name, "unknown", 0.0, reason=reason)
        say(event="result", row=row.name, result=result.as_json())

    async def _in_turn(self, rows: list[Scenario]) -> bool:
        for row in rows:
            if self.stop.is_set():
                return False
            if not await self._one(row, restore=True):
                return False
        return True

    async def _together(self, rows: list[Scenario]) -> bool:
        """All at once; they share the system, which is restored when the last one is over."""
        done = await asyncio.gather(*(self._one(row, restore=False) for row in rows))
        if not all(done):
            return False
        try:
            await self._driver.restore()
        except DriverError as error:
            say(event="halt", reason=f"after the idle rows: {error}")
            return False
        return True

    async def _one(self, row: Scenario, *, restore: bool) -> bool:
        say(event="row", row=row.name)
        try:
            result = await play(
                row,
                self._run,
                self._driver,
                self._journal,
                restore=restore,
                progress=lambda text: say(event="progress", row=row.name, text=text),
                stop=self.stop,
            )
        except NotRestored as error:
            say(event="result", row=row.name, result=error.args[1].as_json())
            say(event="halt", reason=f"after {row.name} the start state did not come back: {error.args[0]}")
            return False
        say(event="result", row=row.name, result=result.as_json())
        return True


async def _beat() -> None:
    while True:
        say(event="beat")
        await asyncio.sleep(BEAT_S)


async def _main() -> None:
    reader = asyncio.StreamReader(limit=1 << 22)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    order = Order(**json.loads(await reader.readline()))
    if order.mutant in mutants.OF_CLIENTS:
        mutants.apply(order.mutant)
    lane = Lane(order)
    beat = asyncio.create_task(_beat())

    async def obey() -> None:
        while await reader.readline() == b"go\n":
            lane.go.set()
        lane.stop.set()
        lane.go.set()

    waiting = asyncio.create_task(obey())
    try:
        await lane.run()
    finally:
        beat.cancel()
        waiting.cancel()


def main() -> None:
    """Anything that is printed goes to the lane's log, never between the messages."""
    global _OUT
    _OUT = os.dup(1)
    os.dup2(2, 1)
    # What was imported is never garbage: collections while a row measures need not look at it.
    gc.collect()
    gc.freeze()
    uvloop.run(_main())


if __name__ == "__main__":
    main()
