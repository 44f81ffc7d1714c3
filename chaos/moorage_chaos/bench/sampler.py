"""A sampling profiler around ``moorage``, in its process: ``python -m moorage_chaos.bench.sampler serve``.

A timer of consumed CPU time (``ITIMER_PROF``) interrupts the main thread every few milliseconds of work; what it
was doing then is booked with the CPU time since the last look, so that waiting costs nothing. Python runs signal
handlers between two instructions: time spent in C (sending, parsing, JSON) is booked on the Python function that
called it, and what is interrupted at its very first instruction, called by the event loop itself, was the loop.

Control lines on standard input: ``start`` and ``stop FILE``; the file is JSON, seconds by function:
``{"total": s, "self": {function: s}, "under": {function: s}}``.
"""

from __future__ import annotations

import dis
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType

import orjson

EVERY_S = 0.002
"""[s] Of CPU time between two looks; the kernel rounds it up to its tick (4 ms at 250 Hz)."""
LOOP = "the event loop: its own C code, WebSocket and Redis parsing in C, reading system calls"
_RESUME = dis.opmap["RESUME"]


class Sampler:
    """Books the CPU time of the main thread on functions while it is on. Make it in the main thread."""

    def __init__(self) -> None:
        self._labels: dict[CodeType, str] = {}
        self._last = 0.0
        self.total = 0.0
        self.own: defaultdict[str, float] = defaultdict(float)
        self.under: defaultdict[str, float] = defaultdict(float)

    def install(self) -> None:
        """Take the signal ``SIGPROF``."""
        signal.signal(signal.SIGPROF, self._interrupted)

    def start(self) -> None:
        """Forget what was booked and begin anew."""
        self.total = self._last = 0.0
        self.own.clear()
        self.under.clear()
        signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)

    def stop(self) -> None:
        """Book no more."""
        signal.setitimer(signal.ITIMER_PROF, 0)

    def _interrupted(self, _number: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        if frame is not None and self._last:
            self.book(frame, now - self._last)
        self._last = now

    def book(self, frame: FrameType, spent: float) -> None:
        """Book ``spent`` [s] on the function of ``frame`` and, once each, on those it runs under."""
        self.total += spent
        back = frame.f_back
        if back is not None and _is_runner(back.f_code) and frame.f_code.co_code[frame.f_lasti] == _RESUME:
            self.own[LOOP] += spent
            return
        self.own[LOOP if _is_runner(frame.f_code) else self._label(frame.f_code)] += spent
        seen = set()
        at: FrameType | None = frame
        while at is not None and not _is_runner(at.f_code):
            seen.add(self._label(at.f_code))
            at = at.f_back
        for name in seen:
            self.under[name] += spent

    def _label(self, code: CodeType) -> str:
        name = self._labels.get(code)
        if name is None:
            parts = Path(code.co_filename).parts[-3:]
            name = self._labels[code] = f"{'/'.join(parts)}:{code.co_firstlineno} {code.co_qualname}"
        return name

    def write(self, path: Path) -> None:
        """Write what was booked, whole or not at all."""
        content = {"total": self.total, "self": dict(self.own), "under": dict(self.under)}
        temporary = path.with_name(path.name + ".part")
        temporary.write_bytes(orjson.dumps(content))
        os.replace(temporary, path)


def _is_runner(code: CodeType) -> bool:
    """Whether this is the function that runs the loop, of which all callbacks of the loop are called."""
    return code.co_name == "run" and code.co_filename.endswith("runners.py")


def _control(sampler: Sampler) -> None:
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "start":
            sampler.start()
        elif word == "stop":
            sampler.stop()
            sampler.write(Path(rest))


def main() -> None:
    """Run ``moorage`` with this process's arguments, sampled on demand."""
    from moorage.cli import main as serve

    sampler = Sampler()
    sampler.install()
    threading.Thread(target=_control, args=(sampler,), name="bench-control", daemon=True).start()
    sys.exit(serve())


if __name__ == "__main__":
    main()
