"""A sampling profiler around ``moorage``, in its process: ``python -m moorage_chaos.bench.sampler serve``.

A thread looks at the main thread's stack every few milliseconds and books the CPU time that the main thread
used since the last look (its own clock, so waiting costs nothing) on what it sees. Control lines on standard
input: ``start`` and ``stop FILE``; the file is JSON, seconds by function:
``{"total": s, "self": {function: s}, "under": {function: s}}``.
Time in C (sending, parsing, JSON) is booked on the Python function that called it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from types import CodeType, FrameType

import orjson

EVERY_S = 0.002
"""[s] Between two looks."""


class Sampler(threading.Thread):
    """Books the CPU time of thread ``ident`` on functions while it is on."""

    def __init__(self, ident: int) -> None:
        super().__init__(name="bench-sampler", daemon=True)
        self._watched = ident
        self._clock = time.pthread_getcpuclockid(ident)
        self._on = threading.Event()
        self._labels: dict[CodeType, str] = {}
        self.total = 0.0
        self.own: defaultdict[str, float] = defaultdict(float)
        self.under: defaultdict[str, float] = defaultdict(float)

    def start_counting(self) -> None:
        """Forget what was booked and begin anew."""
        self.total = 0.0
        self.own.clear()
        self.under.clear()
        self._on.set()

    def stop_counting(self) -> None:
        """Book no more."""
        self._on.clear()

    def run(self) -> None:
        while True:
            self._on.wait()
            last = time.clock_gettime(self._clock)
            while self._on.is_set():
                time.sleep(EVERY_S)
                now = time.clock_gettime(self._clock)
                frame = sys._current_frames().get(self._watched)
                if frame is not None:
                    self.book(frame, now - last)
                last = now

    def book(self, frame: FrameType, spent: float) -> None:
        """Book ``spent`` [s] on the function of ``frame`` and, once each, on those it runs under."""
        self.total += spent
        self.own[self._label(frame.f_code)] += spent
        seen = set()
        at: FrameType | None = frame
        while at is not None:
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


def _control(sampler: Sampler) -> None:
    for line in sys.stdin:
        word, _, rest = line.strip().partition(" ")
        if word == "start":
            sampler.start_counting()
        elif word == "stop":
            sampler.stop_counting()
            sampler.write(Path(rest))


def main() -> None:
    """Run ``moorage`` with this process's arguments, sampled on demand."""
    from moorage.cli import main as serve

    sampler = Sampler(threading.main_thread().ident or 0)
    sampler.start()
    threading.Thread(target=_control, args=(sampler,), name="bench-control", daemon=True).start()
    sys.exit(serve())


if __name__ == "__main__":
    main()
