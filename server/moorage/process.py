"""One process of ours: logs, event loop, signals, exit code. What it does is handed in.

The process ends when its work has ended, whatever else is still running in it: a task that does not let itself be
cancelled, or a thread in the middle of something, is left behind (docs/tasks.md, "A worker is told to end").
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

from moorage import logs
from moorage.errors import CannotListen
from moorage.settings import Settings, unknown_variables

log = structlog.get_logger("moorage")

END_S = 0.5
"""[s] What still runs when the work is done has so long to be cancelled, and its threads as long again."""

NAMED_MAX = 5
"""So many of those left behind are named in the log."""


class Stop(asyncio.Event):
    """Set by SIGTERM or SIGINT. ``at_once`` is set by a SIGINT after that: nothing is to be waited for any more."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = asyncio.Event()

    def interrupt(self) -> None:
        """A SIGINT."""
        (self.at_once if self.is_set() else self).set()

    async def patience(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` to its end, or until ``at_once``; then it is cancelled."""
        working = asyncio.create_task(work)
        hurry = asyncio.create_task(self.at_once.wait())
        try:
            await asyncio.wait({working, hurry}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurry.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
        if not working.cancelled():
            working.result()


def run_process(settings: Settings, work: Callable[[Stop], Awaitable[None]]) -> int:
    """Run ``work(stop)`` in this process; SIGTERM and SIGINT set ``stop``. 0 if one did, else 1.

    Does not return, but ends the process with that code, when something is left behind.
    """
    import uvloop

    logs.configure(settings.log_level, settings.log_format)

    async def main() -> bool:
        stop = Stop()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGINT, stop.interrupt)
        for name in unknown_variables():
            log.warning("unknown environment variable, perhaps misspelt", variable=name)
        try:
            await work(stop)
        except CannotListen as error:
            log.error(str(error))
            return False
        return stop.is_set()

    before = set(threading.enumerate())
    loop = uvloop.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        code = 0 if loop.run_until_complete(main()) else 1
    finally:
        left = loop.run_until_complete(_wind_up())
        if not left:
            loop.close()
        asyncio.set_event_loop(None)
    if left := left or _threads_left(before):
        log.warning(
            "ending all the same, although something does not end", left=left[:NAMED_MAX], count=len(left)
        )
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


async def _wind_up() -> list[str]:
    """Cancel all that still runs; what does not end."""
    loop = asyncio.get_running_loop()
    running = asyncio.all_tasks() - {asyncio.current_task()}
    for task in running:
        task.cancel()
    running.add(asyncio.create_task(loop.shutdown_asyncgens()))
    done, pending = await asyncio.wait(running, timeout=END_S)
    for task in done:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("failed while the process ended", task=task.get_name(), error=type(error).__name__)
    return [task.get_name() for task in pending]


def _threads_left(before: set[threading.Thread]) -> list[str]:
    """Threads begun since, which the end of the interpreter would wait for."""
    deadline = time.monotonic() + END_S
    begun = [one for one in threading.enumerate() if one not in before and not one.daemon]
    for thread in begun:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [f"thread {thread.name}" for thread in begun if thread.is_alive()]
