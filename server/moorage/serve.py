"""Listens and serves until a signal: the order of start and stop. Everything else is ``app``."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket

import structlog
import uvicorn

from moorage.app import Replica
from moorage.listening import COMMON, Server, listen, metrics_server
from moorage.process import Stop, run_process
from moorage.settings import Settings

log = structlog.get_logger("moorage")


async def run(settings: Settings, stop: Stop) -> None:
    """Serve until ``stop`` is set, drain unless that has to be at once, stop.

    Probes are answered from the first moment, whether Redis is there or not. Raises
    :class:`~moorage.errors.CannotListen` before anything is started.
    """
    replica = Replica(settings)
    with contextlib.ExitStack() as listeners:
        pairs = [(_server(replica, settings), listen(settings.host, settings.port, "PORT"))]
        listeners.callback(pairs[0][1].close)
        if settings.metrics_enabled:
            server = metrics_server(replica.metrics)
            pairs.append((server, listen(settings.host, settings.metrics_port, "METRICS_PORT")))
            listeners.callback(pairs[1][1].close)
        await _run(replica, pairs, stop)


def _server(replica: Replica, settings: Settings) -> Server:
    return Server(
        uvicorn.Config(replica.asgi, http=replica.server.http_protocol, ws="websockets-sansio", **COMMON)
    )


async def _run(replica: Replica, pairs: list[tuple[Server, socket.socket]], stop: Stop) -> None:
    settings = replica.settings
    await replica.begin()
    # What there is by now stays for good; looking through it again and again costs milliseconds each time.
    gc.collect()
    gc.freeze()
    serving = [asyncio.create_task(server.serve(sockets=[listener])) for server, listener in pairs]
    coming = asyncio.create_task(replica.come_up())
    stopping = asyncio.create_task(stop.wait())
    port = pairs[0][1].getsockname()[1]
    log.info("serving", replica=settings.replica_id, port=port, redis=bool(settings.redis_url))
    try:
        await asyncio.wait([stopping, *serving], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            await stop.patience(replica.lead_away())
            await replica.end_what_is_left()
    finally:
        stopping.cancel()
        coming.cancel()
        for server, _ in pairs:
            server.should_exit = True
        for ended in await asyncio.gather(*serving, return_exceptions=True):
            if isinstance(ended, Exception):
                log.error("a listener failed", reason=str(ended))
        await replica.stop()


def serve(settings: Settings) -> int:
    """Run a replica in this process; SIGTERM or SIGINT drains it, another SIGINT ends the drain. Returns the exit
    code."""
    return run_process(settings, lambda stop: run(settings, stop))
