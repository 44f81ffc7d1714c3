"""Plays a selection of rows: a process per lane, side by side; collects what they tell."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moorage_chaos.display import Display
from moorage_chaos.drivers.local import ENTRY
from moorage_chaos.lane import Order
from moorage_chaos.results import result_from
from moorage_chaos.scenarios.base import Scenario
from moorage_chaos.verdict import RowResult

LANES = ("main", "calm", "idle")
SILENCE_BOUND_S = 30.0
"""A lane beats each second; after this long its event loop does not turn, and it is killed."""
INTERRUPTED = "interrupted"
STOP_BOUND_S = 150.0
"""From `stop` to the end of a lane: closing clients, undo, restore, each within its own bound."""


@dataclass
class Selection:
    """What to play, and how."""

    rows: Sequence[type[Scenario]]
    seed: int
    driver: str
    replicas: int
    folder: Path
    versions: dict[str, str]
    mutant: str | None = None
    redis_url: str | None = None
    serial: bool = False
    """One lane after the other."""
    entry: str = ENTRY
    rows_folder: Path | None = None
    faults: tuple[int, ...] | None = None
    """Numbers of the faults to inject, as in :class:`moorage_chaos.faults.base.Faults`; None: all."""
    kubernetes: dict[str, Any] | None = None
    """:meth:`moorage_chaos.on_kubernetes.Options.as_json`, for that driver."""


@dataclass
class _Lane:
    name: str
    rows: list[str]
    results: dict[str, RowResult] = field(default_factory=dict)
    process: asyncio.subprocess.Process | None = None
    heard_at: float = 0.0
    built: bool = False
    """Its system is up, or it will never be."""
    reason: str = ""
    """Why rows of it were not played."""


class Runner:
    """One run. :meth:`run` returns a result for every row, in the order given, whatever happens."""

    def __init__(self, selection: Selection, display: Display) -> None:
        self._selection = selection
        self._display = display
        self._stopping = ""
        # With one external Redis, or one RealtimeServer, all lanes share a system: none runs beside another.
        one_system = selection.redis_url is not None or selection.kubernetes is not None
        self._one_by_one = selection.serial or one_system
        self._lanes = [
            _Lane(name, [row.name for row in selection.rows if row.lane == name])
            for name in LANES
            if any(row.lane == name for row in selection.rows)
        ]

    @property
    def interrupted(self) -> bool:
        """Somebody pressed Ctrl-C."""
        return self._stopping == INTERRUPTED

    async def run(self) -> list[RowResult]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._interrupted)
        loop.add_signal_handler(signal.SIGTERM, self._interrupted)
        try:
            if self._one_by_one:
                for lane in self._lanes:
                    await self._play(lane)
            else:
                await asyncio.gather(*(self._play(lane) for lane in self._lanes))
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)
        results = {name: result for lane in self._lanes for name, result in lane.results.items()}
        return [results[row.name] for row in self._selection.rows]

    # -- stopping --------------------------------------------------------------------------------------
    def _interrupted(self) -> None:
        if self._stopping:
            self._display.note("killing the lanes; `run_all.py recover` undoes what they leave")
            self._each(lambda process: process.kill())
            return
        self._display.note("stopping: undoing all faults (again: kill)")
        self.stop(INTERRUPTED)

    def stop(self, reason: str) -> None:
        """Every lane ends its row, undoes everything and ends."""
        if not self._stopping:
            self._stopping = reason
            self._each(lambda process: process.stdin.write(b"stop\n") if process.stdin else None)

    def _each(self, act: Callable[[asyncio.subprocess.Process], object]) -> None:
        for lane in self._lanes:
            if lane.process is not None and lane.process.returncode is None:
                act(lane.process)

    # -- one lane --------------------------------------------------------------------------------------
    def _is_built(self, lane: _Lane) -> None:
        """All lanes begin together: building a system costs cores that a row of another lane would measure."""
        lane.built = True
        together = [lane] if self._one_by_one else self._lanes
        if all(one.built for one in together):
            self._each(lambda process: process.stdin.write(b"go\n") if process.stdin else None)

    async def _play(self, lane: _Lane) -> None:
        try:
            if not self._stopping:
                await self._supervise(lane)
        except OSError as error:
            lane.reason = lane.reason or f"the lane's process could not be started: {error}"
        for name in lane.rows:
            if name not in lane.results:
                reason = lane.reason or self._stopping or "not played"
                self._finish(lane, RowResult(name, "unknown", 0.0, reason=f"not played: {reason}"))

    def _finish(self, lane: _Lane, result: RowResult) -> None:
        lane.results[result.row] = result
        self._display.finished(lane.name, result)

    async def _supervise(self, lane: _Lane) -> None:
        s = self._selection
        logs = s.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / f"{lane.name}-harness.log").open("ab") as log:
            lane.process = await asyncio.create_subprocess_exec(
                *(s.kubernetes or {}).get("prefix", ()),
                sys.executable,
                "-m",
                "moorage_chaos.lane",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C is for the runner, which stops the lanes in order
                limit=1 << 24,
            )
        process = lane.process
        assert process.stdin is not None
        order = Order(
            lane=lane.name,
            rows=lane.rows,
            seed=s.seed,
            driver=s.driver,
            replicas=s.replicas,
            folder=str(s.folder),
            mutant=s.mutant,
            redis_url=s.redis_url,
            versions=s.versions,
            entry=s.entry,
            rows_folder=str(s.rows_folder.absolute()) if s.rows_folder else None,
            faults=list(s.faults) if s.faults is not None else None,
            kubernetes=s.kubernetes,
        )
        process.stdin.write(order.line())
        lane.heard_at = time.monotonic()
        watch = asyncio.create_task(self._watch(lane, process))
        try:
            await self._listen(lane, process)
            code = await process.wait()
        finally:
            watch.cancel()
            self._is_built(lane)
        if code != 0 and not lane.reason:
            # The other lanes play on: their systems are their own.
            lane.reason = f"the harness process of lane {lane.name} ended with {code}, see {log.name}"

    async def _watch(self, lane: _Lane, process: asyncio.subprocess.Process) -> None:
        stopping_since = 0.0
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            if self._stopping and not stopping_since:
                stopping_since = now
            if now - lane.heard_at > SILENCE_BOUND_S:
                lane.reason = f"the harness process of lane {lane.name} was silent for {SILENCE_BOUND_S:g} s"
            elif not stopping_since or now - stopping_since <= STOP_BOUND_S:
                continue
            process.kill()
            return

    async def _listen(self, lane: _Lane, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            lane.heard_at = time.monotonic()
            try:
                message: dict[str, Any] = json.loads(line)
                if message["event"] == "result":
                    self._finish(lane, result_from(message["result"]))
                    continue
                if message["event"] == "built":
                    self._is_built(lane)
                if message["event"] == "note":
                    self._display.note(str(message["text"]))
                    continue
            except (KeyError, TypeError, ValueError) as error:
                self._display.note(f"{lane.name}: unreadable message ({error!r}): {line[:200]!r}")
                continue
            self._display.heard(lane.name, message)
            if message["event"] == "halt":
                lane.reason = str(message["reason"])
                self.stop(lane.reason)
