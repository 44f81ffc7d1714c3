"""One process of ours: logs, event loop, signals, exit code. What it does is handed in."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable

import structlog

from moorage import logs
from moorage.errors import CannotListen
from moorage.settings import Settings, unknown_variables

log = structlog.get_logger("moorage")


def run_process(settings: Settings, work: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Run ``work(stop)`` in this process; SIGTERM and SIGINT set ``stop``. 0 if one did, else 1."""
    import uvloop

    logs.configure(settings.log_level, settings.log_format)

    async def main() -> bool:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        for name in unknown_variables():
            log.warning("unknown environment variable, perhaps misspelt", variable=name)
        try:
            await work(stop)
        except CannotListen as error:
            log.error(str(error))
            return False
        return stop.is_set()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        asked_to_stop = runner.run(main())
    return 0 if asked_to_stop else 1
