"""``moorage worker`` under record: every append of the process is told on stdout, before and after.

``python -m moorage_chaos.worker [MUTANT]``; :meth:`moorage_chaos.drivers.base.Driver.told` finds the lines. They are
the worker's own word about what it reported, independent of the log, of replicas and of clients::

    JOURNAL {"t", "n", "worker", "phase": "invoke", "session", "type", "data", "key", "transient"}
    JOURNAL {"t", "n", "worker", "phase": "ok", "id", "seq"}      `n` joins them; an invoke alone may have happened
    JOURNAL {"t", "n", "worker", "phase": "fail", "error"}
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from typing import Any

import orjson

PREFIX = "JOURNAL "


def tell(**row: Any) -> None:
    """One whole line, now: a killed worker must have said what it did."""
    os.write(1, PREFIX.encode() + orjson.dumps({"t": time.monotonic_ns(), **row}, default=str) + b"\n")


def record() -> None:
    """Wrap the append of this process."""
    from moorage.events.log import EventLog

    append = EventLog.append
    numbers = count(1)
    worker = os.environ.get("MOORAGE_REPLICA_ID", "")

    async def _append(
        self: Any, session_id: str, type: str, data: Any, *, key: str | None = None, transient: bool = False
    ) -> Any:
        own = {"n": next(numbers), "worker": worker}
        what = {"session": session_id, "type": type, "data": data, "key": key, "transient": transient}
        tell(**own, phase="invoke", **what)
        try:
            made = await append(self, session_id, type, data, key=key, transient=transient)
        except Exception as error:
            tell(**own, phase="fail", error=f"{error.__class__.__name__}: {error}")
            raise
        tell(**own, phase="ok", id=made.id, seq=made.seq)
        return made

    EventLog.append = _append  # type: ignore[method-assign]


def run(mutant: str | None = None) -> int:
    """Break the process if asked, record it, run ``moorage worker``; its exit code."""
    from moorage.cli import main
    from moorage_chaos import mutants

    if mutant is not None:
        mutants.apply(mutant)
    record()
    return main(["worker"])


if __name__ == "__main__":
    sys.exit(run(*sys.argv[1:2]))
