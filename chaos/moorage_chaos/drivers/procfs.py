"""Processes as the kernel knows them: start time, state, environment. A pid alone is no identity."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

TAG = "CHAOS_RUN"
"""Environment variable (none of the server's) that marks every process of one system; ``recover`` finds orphans by
it."""


def _stat(pid: int) -> list[str]:
    """Fields after the command name: [0] is the state, [19] the start time (proc(5), fields 3 and 22)."""
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return text[text.rindex(")") + 2 :].split()


def start_time(pid: int) -> int:
    """Clock ticks since boot at which it started; 0 if there is no such process."""
    try:
        return int(_stat(pid)[19])
    except (OSError, ValueError, IndexError):
        return 0


def state(pid: int) -> str:
    """``R S D T Z`` …; empty if there is no such process."""
    try:
        return _stat(pid)[0]
    except (OSError, ValueError, IndexError):
        return ""


def is_same(pid: int, start: int) -> bool:
    """The process that had this pid and start time lives (a zombie does not)."""
    return start > 0 and start_time(pid) == start and state(pid) not in ("Z", "X")


def tagged(tag: str) -> Iterator[tuple[int, int]]:
    """``(pid, start)`` of every living process of ours whose environment carries ``tag``."""
    wanted = f"{TAG}={tag}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        pid = int(entry)
        start = start_time(pid)
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0") and is_same(pid, start):
            yield pid, start


def send(pid: int, start: int, number: signal.Signals) -> bool:
    """Signal exactly that process; False if it is gone. A pidfd keeps the pid from being reused meanwhile."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_same(pid, start):
            return False
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)
    return True
