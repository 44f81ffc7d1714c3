"""Processes of pods, found by their cgroup: the path of each holds the pod's uid and the container's id."""

from __future__ import annotations

import os
import re
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_CONTAINER = re.compile(r"([0-9a-f]{64})")
GONE_BOUND_S = 5.0
"""From SIGKILL to the end of the process; the kernel needs milliseconds."""


class NoProcess(Exception):
    """There is no such process (any more)."""


@dataclass(frozen=True)
class Found:
    """``first``: it is process 1 of its own pid namespace, which is what the runtime started."""

    pid: int
    container: str
    first: bool


def of_pod(uid: str, proc: Path = PROC) -> list[Found]:
    """Every process of a pod, the sandbox's ``pause`` included. cgroup drivers write the uid with ``-`` or ``_``."""
    names = (uid, uid.replace("-", "_"))
    found = []
    for entry in os.listdir(proc):
        if not entry.isdigit():
            continue
        try:
            text = (proc / entry / "cgroup").read_text()
            if not any(name in text for name in names):
                continue
            ids = _CONTAINER.findall(text)
            found.append(Found(int(entry), ids[-1] if ids else "", _is_first(proc / entry)))
        except OSError:  # it ended while we looked
            continue
    return found


def _is_first(folder: Path) -> bool:
    for line in (folder / "status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return line.split()[-1] == "1"
    return False


def main_of(uid: str, container: str, proc: Path = PROC) -> int:
    """Pid of the container's own process on the node. Raises NoProcess."""
    mine = [found for found in of_pod(uid, proc) if found.container == container]
    # With a shared pid namespace (shareProcessNamespace) nobody but pause is first: then the oldest it is.
    mine.sort(key=lambda found: (not found.first, found.pid))
    if not mine:
        raise NoProcess(f"no process of container {container[:12]} in pod {uid}")
    return mine[0].pid


def any_of(uid: str, proc: Path = PROC) -> int:
    """Some process of the pod, to enter its network namespace by; the sandbox outlives the containers."""
    everyone = of_pod(uid, proc)
    if not everyone:
        raise NoProcess(f"no process of pod {uid} on this node")
    return min(found.pid for found in everyone)


def state(pid: int, proc: Path = PROC) -> str:
    """``R S D T Z`` of proc(5); empty if it is gone."""
    try:
        text = (proc / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return ""
    return text[text.rindex(")") + 2 :].split()[0]


def send(pid: int, number: signal.Signals) -> tuple[int, int]:
    """``(monotonic ns just before the signal, pidfd)``; the caller closes it. Raises NoProcess."""
    try:
        fd = os.pidfd_open(pid)
        moment = time.monotonic_ns()
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError as error:
        raise NoProcess(f"process {pid} is gone") from error
    return moment, fd


def until_gone(fd: int, bound_s: float = GONE_BOUND_S) -> int:
    """Monotonic ns at which the process behind a pidfd was seen to have ended. Raises TimeoutError."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    if not poller.poll(bound_s * 1000):
        raise TimeoutError(f"the process did not end within {bound_s:g} s")
    return time.monotonic_ns()


def until_state(pid: int, wanted: str, bound_s: float = 1.0) -> str:
    """Wait until the kernel shows one of the states in ``wanted``; the state. Raises TimeoutError."""
    end = time.monotonic() + bound_s
    while True:
        now = state(pid)
        if now and now in wanted:
            return now
        if time.monotonic() > end:
            raise TimeoutError(f"process {pid} is in state {now!r}, not in {wanted!r}")
        time.sleep(0.002)


def wake(uid: str, proc: Path = PROC) -> list[int]:
    """SIGCONT every stopped process of a pod; their pids."""
    woken = []
    for found in of_pod(uid, proc):
        if state(found.pid, proc) in ("T", "t"):
            os.kill(found.pid, signal.SIGCONT)
            woken.append(found.pid)
    return woken
