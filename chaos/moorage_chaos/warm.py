"""Warm processes: a parent that has imported the server once and forks a replica in milliseconds.

Starting ``moorage serve`` costs about a second of a core for imports; on two cores that would be measured by
whatever row runs meanwhile. A fork of this process costs some milliseconds and runs the very same entry
point. The process imports, never starts a thread or an event loop, and is the parent of everything it
starts, so it sees each end with its exit code. When its stdin ends (the harness died, however) it kills all
it started; each child also asks the kernel to be killed when this process dies.

JSON lines on stdin, answers and events on stdout:

==========  ==================================================================================================
``start``   ``id, entry "module:function", args, argv, env, log`` -> ``{"id", "pid", "start", "t"}``: fork and
            call ``function(*args)`` with ``sys.argv = argv``; ``env`` is the whole environment; ``netns``, if
            given: in that network namespace
``exec``    ``id, argv, env, log`` -> the same: fork and exec ``argv``
``signal``  ``id, pid, number`` -> ``{"id", "t"}``, t taken just before the signal; or ``{"id", "error"}``
event       ``{"exit": pid, "code": status or -signal, "t"}``
==========  ==================================================================================================

``start`` is the process's start time in clock ticks since boot (/proc/<pid>/stat), which tells it from a
later process with the same pid. ``t`` is CLOCK_MONOTONIC in ns.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import sys
import time
import traceback
from typing import Any, NoReturn

from moorage_chaos.drivers.procfs import start_time

PR_SET_PDEATHSIG = 1
"""prctl(2)."""
CLONE_NEWNET = 0x40000000
"""setns(2)."""


class Parent:
    """Forks, reaps, passes signals on."""

    def __init__(self, requests: int, answers: int) -> None:
        self._in = requests
        self._out = answers
        self._buffer = b""
        self._children: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)

    def run(self) -> None:
        """Until stdin ends; then every child is killed."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write)
        selector = self._selector
        selector.register(self._in, selectors.EVENT_READ)
        selector.register(self._wake_read, selectors.EVENT_READ)
        self._say({"ready": True})
        try:
            while True:
                for key, _ in selector.select():
                    if key.fd == self._in and not self._read():
                        return
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake_read, 4096)
                self._reap()
        finally:
            for pid in self._children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _say(self, message: dict[str, Any]) -> None:
        os.write(self._out, json.dumps(message).encode() + b"\n")

    def _read(self) -> bool:
        data = os.read(self._in, 1 << 20)
        self._buffer += data
        while (at := self._buffer.find(b"\n")) >= 0:
            line, self._buffer = self._buffer[:at], self._buffer[at + 1 :]
            request: dict[str, Any] = {}
            try:
                request = json.loads(line)
                self._say({"id": request["id"], **self._handle(request)})
            except (KeyError, TypeError, ValueError, OSError) as error:
                self._say({"id": request.get("id"), "error": f"{type(error).__name__}: {error}"})
        return bool(data)

    def _handle(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["op"] in ("start", "exec"):
            return self._start(request)
        if request["op"] == "signal":
            pid = request["pid"]
            # Only what is not reaped yet: its pid cannot belong to anybody else.
            if pid not in self._children:
                return {"error": "gone"}
            t = time.monotonic_ns()
            os.kill(pid, request["number"])
            return {"t": t}
        raise ValueError(f"unknown op {request['op']!r}")

    def _start(self, request: dict[str, Any]) -> dict[str, Any]:
        argv = [str(word) for word in request["argv"]]
        env = {str(key): str(value) for key, value in request["env"].items()}
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        mother = os.getpid()
        bound_read, bound_write = os.pipe()
        t = time.monotonic_ns()
        pid = os.fork()
        if pid == 0:
            os.close(bound_read)
            self._become(request, argv, env, log, mother, bound_write)
        os.close(log)
        os.close(bound_write)
        self._children.add(pid)
        # Before anybody knows its pid, its life is bound to ours: one that is stopped earlier would outlive us.
        os.read(bound_read, 1)
        os.close(bound_read)
        return {"pid": pid, "start": start_time(pid), "t": t}

    def _become(
        self,
        request: dict[str, Any],
        argv: list[str],
        env: dict[str, str],
        log: int,
        mother: int,
        bound: int,
    ) -> NoReturn:
        """In the child: a session, descriptors, environment of its own; then the program. ``bound`` is closed as
        soon as the child ends with its mother."""
        code = 1
        try:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != mother:  # it died in between: nobody would tell us
                os._exit(1)
            os.close(bound)
            os.setsid()
            if request.get("netns"):
                _enter(request["netns"])
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDONLY)
            for source, to in ((null, 0), (log, 1), (log, 2)):
                os.dup2(source, to)
            for fd in (null, log, self._in, self._out, self._wake_read, self._wake_write):
                if fd > 2:
                    os.close(fd)
            self._selector.close()
            if request["op"] == "exec":
                os.execvpe(argv[0], argv, env)
            os.environ.clear()
            os.environ.update(env)
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 -- lives as long as the process
            sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
            sys.argv = argv
            module, _, name = request["entry"].partition(":")
            code = _code_of(getattr(importlib.import_module(module), name), request["args"])
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._children.discard(pid)
            self._say({"exit": pid, "code": os.waitstatus_to_exitcode(status), "t": time.monotonic_ns()})


def _enter(namespace: str) -> None:
    """Join a network namespace, given as a file. Raises OSError."""
    fd = os.open(namespace, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns to {namespace}")
    finally:
        os.close(fd)


def _code_of(function: Any, args: list[Any]) -> int:
    """Exit status of an entry point, as the interpreter would make it."""
    try:
        result = function(*args)
    except SystemExit as error:
        result = error.code
    if result is None or isinstance(result, int):
        return result or 0
    print(result, file=sys.stderr)  # noqa: T201 -- what sys.exit does with a string
    return 1


def main() -> None:
    """``python -m moorage_chaos.warm [module …]``: import the modules that exist, then serve."""
    requests, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # nothing that is imported may write into the answers
    for name in sys.argv[1:]:
        try:
            importlib.import_module(name)
        except ImportError as error:
            print(f"not warmed: {error}", file=sys.stderr)  # noqa: T201 -- goes to the log
    # Collected now and never looked at again, so that children share these pages instead of copying them.
    gc.collect()
    gc.freeze()
    Parent(requests, answers).run()


if __name__ == "__main__":
    main()
