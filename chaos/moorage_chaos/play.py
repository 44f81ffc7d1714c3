"""Play one row on a system: history, clients, faults; clean up; restore; judge."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moorage_chaos.checkers import ALWAYS, judge
from moorage_chaos.clients import Clients
from moorage_chaos.drivers.base import Driver
from moorage_chaos.faults.base import Faults, Journal
from moorage_chaos.history import History
from moorage_chaos.scenarios.base import Context, Scenario
from moorage_chaos.verdict import Promise, RowResult, promise_from, row_result

CLOSE_BOUND_S = 15.0
"""Of closing all clients of a row."""
UNDO_BOUND_S = 60.0
"""Of taking back what a row left in force; a launch and a roll of three fit in."""
RESTORE_BOUND_S = 60.0
"""MATRIX, "Restored"."""
OUTCOME = "outcome"
"""Last note of a history: how long the row took [s], whether it was played to its end, and the harness's own trouble
as promises."""
COUNTED = ("call", "emit")
"""Operations whose ends are counted in the report."""


class NotRestored(Exception):
    """The start state did not come back: the run stops."""


@dataclass(frozen=True)
class Run:
    """What all rows of one run share."""

    seed: int
    driver: str
    folder: Path
    mutant: str | None
    versions: dict[str, str]
    faults: tuple[int, ...] | None = None
    """Numbers of the faults to inject; None: all."""


def seed_of(run_seed: int, row: str) -> int:
    """The row's own seed (63 bits), so that a row alone plays as it does in the matrix."""
    return int.from_bytes(hashlib.sha256(f"{run_seed}:{row}".encode()).digest()[:8], "big") >> 1


async def play(
    scenario: Scenario,
    run: Run,
    driver: Driver,
    journal: Journal,
    *,
    restore: bool,
    progress: Callable[[str], None],
    stop: asyncio.Event,
) -> RowResult:
    """The judged row; its history is saved. Raises :class:`NotRestored`, whose ``args[1]`` is the result."""
    began = time.monotonic()
    folder = run.folder / scenario.name
    folder.mkdir(parents=True, exist_ok=True)
    seed = seed_of(run.seed, scenario.name)
    history = History(_header(scenario, run, driver, seed))

    def heard(op: str, t_ns: int, value: dict[str, Any]) -> None:
        history.note(op, process="driver", t=t_ns, **value)

    driver.listeners.append(heard)
    trouble: list[Promise] = []
    clients = Clients(driver, history, random.Random(seed))
    faults = Faults(driver, history, journal, run.faults)
    context = Context(driver, seed, random.Random(seed), history, clients, faults, folder, progress)
    try:
        reason = await _run(scenario, context, stop)
        if reason:
            trouble.append(Promise("played", "the row was played to its end", None, "", "unknown", reason))
        ended = time.monotonic() - began
        trouble += await _bounded("clients closed", clients.close, CLOSE_BOUND_S)
        trouble += await _bounded("faults undone", faults.undo_all, UNDO_BOUND_S)
        back = await _bounded("restored", driver.restore, RESTORE_BOUND_S + 5) if restore else []
    finally:
        driver.listeners.remove(heard)
    history.note(
        OUTCOME,
        seconds=round(ended, 3),
        played=not reason,
        trouble=[promise.as_json() for promise in [*trouble, *back]],
    )
    history.save(folder / "history.jsonl")
    # What was saved is judged, not what is in memory: `run_all.py check` sees exactly this.
    result = judged(scenario, History.load(folder / "history.jsonl"))
    if back:
        raise NotRestored(back[0].why, result)
    return result


def judged(scenario: Scenario, history: History) -> RowResult:
    """Judge a saved history. Of a row that was not played to its end only what holds in every row is judged: a call
    that was never made is no failed call."""
    outcome = history.notes(OUTCOME)
    seconds, played, promises = 0.0, True, []
    if outcome:
        value = outcome[-1].value
        seconds, played = value["seconds"], value["played"]
        promises = [promise_from(row) for row in value["trouble"]]
    if played:
        promises += judge(history, (scenario.check,))
    promises += judge(history, ALWAYS)
    counts = {"ok": 0, "failed": 0, "unknown": 0}
    for op in COUNTED:
        for key, count in history.counts(op).items():
            counts[key] += count
    return row_result(scenario.name, seconds, promises, counts=counts, mutants=scenario.mutants)


def _header(scenario: Scenario, run: Run, driver: Driver, seed: int) -> dict[str, Any]:
    setup = driver.setup
    return {
        "row": scenario.name,
        "promise": scenario.promise,
        "seed": seed,
        "runSeed": run.seed,
        "driver": run.driver,
        "replicas": [replica.id for replica in driver.replicas],
        "links": [replica.link for replica in driver.replicas],
        "env": dict(setup.env),
        "redisLinks": setup.redis_links,
        "mutant": run.mutant,
        "versions": run.versions,
    }


async def _run(scenario: Scenario, context: Context, stop: asyncio.Event) -> str:
    """Why the row was not played to its end; empty if it was."""
    task = asyncio.create_task(scenario.run(context))
    stopped = asyncio.create_task(stop.wait())
    try:
        bound = scenario.bound_s * context.driver.pace
        await asyncio.wait({task, stopped}, timeout=bound, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_BOUND_S)
            return "stopped" if stop.is_set() else f"not over after its bound of {bound:g} s"
        if task.cancelled():
            return "it cancelled itself"
        error = task.exception()
        if error is None:
            return ""
        text = "".join(traceback.format_exception(error))
        (context.folder / "error.txt").write_text(text)
        return f"{type(error).__name__}: {error}"
    finally:
        stopped.cancel()


async def _bounded(name: str, work: Callable[[], Awaitable[None]], bound_s: float) -> list[Promise]:
    """Do it; nothing if it worked, else one promise that is unknown and says why."""
    try:
        async with asyncio.timeout(bound_s):
            await work()
    except TimeoutError:
        why = f"not within {bound_s:g} s"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    else:
        return []
    return [Promise(name, f"<= {bound_s:g}", None, "s", "unknown", why)]
