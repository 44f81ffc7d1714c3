"""Entry points for the tests of the warm parent."""

from __future__ import annotations

import os
import signal
import sys
import time

os.register_at_fork(after_in_child=lambda: time.sleep(float(os.environ["SLOW_FORK_S"])))


def gives(code: object) -> object:
    return code


def exits(code: object) -> None:
    sys.exit(code)  # type: ignore[arg-type]


def raises() -> None:
    raise ValueError("on purpose")


def tells() -> None:
    descriptors = sorted(int(name) for name in os.listdir("/proc/self/fd"))
    fresh = signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    for line in (
        sys.argv,
        sorted(name for name in os.environ if name != "LC_CTYPE"),
        " ".join(map(str, descriptors)),
        f"{fresh} {os.getsid(0) == os.getpid()}",
    ):
        print(line)  # noqa: T201 -- its output is what the test reads
