"""Listens and serves until a signal: sockets, uvicorn, the order of start and stop. Everything else is ``app``."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import structlog
import uvicorn

from moorage import logs
from moorage.app import Replica
from moorage.errors import CannotListen
from moorage.metrics import Metrics
from moorage.settings import Settings, unknown_variables

log = structlog.get_logger("moorage")

BACKLOG = 4096
"""Connections that wait to be accepted: a thousand clients that come back at once are normal."""
LINGER_S = 2
"""How long answers under way may take after the drain."""


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: a signal begins a drain, and the drain ends the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int, variable: str) -> socket.socket:
    """A listening socket. Raises :class:`~moorage.errors.CannotListen` that names ``variable``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotListen(f"{variable}={port}: cannot listen on {host}: {reason}") from None


def metrics_app(metrics: Metrics) -> Any:
    """``GET /metrics``, on a listener of its own."""

    async def app(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            return
        found = scope["path"].rstrip("/") == "/metrics" and scope["method"] in ("GET", "HEAD")
        body, kind = metrics.render() if found else (b"Not found\n", "text/plain")
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": 200 if found else 404, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


async def run(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set, drain, stop.

    Probes are answered from the first moment, whether Redis is there or not. Raises
    :class:`~moorage.errors.CannotListen` before anything is started.
    """
    for name in unknown_variables():
        log.warning("unknown environment variable, perhaps misspelt", variable=name)
    replica = Replica(settings)
    with contextlib.ExitStack() as listeners:
        pairs = [(_server(replica, settings), listen(settings.host, settings.port, "PORT"))]
        listeners.callback(pairs[0][1].close)
        if settings.metrics_enabled:
            server = Server(uvicorn.Config(metrics_app(replica.metrics), ws="none", **_COMMON))
            pairs.append((server, listen(settings.host, settings.metrics_port, "METRICS_PORT")))
            listeners.callback(pairs[1][1].close)
        await _run(replica, pairs, stop)


KEEP_ALIVE_S = 75
"""Idle HTTP connections stay longer than the 60 s of common load balancers, which else send into a closed one."""

_COMMON: dict[str, Any] = {
    "timeout_keep_alive": KEEP_ALIVE_S,
    "lifespan": "off",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "backlog": BACKLOG,
    "timeout_graceful_shutdown": LINGER_S,
}


def _server(replica: Replica, settings: Settings) -> Server:
    return Server(
        uvicorn.Config(replica.asgi, http=replica.server.http_protocol, ws="websockets-sansio", **_COMMON)
    )


async def _run(replica: Replica, pairs: list[tuple[Server, socket.socket]], stop: asyncio.Event) -> None:
    settings = replica.settings
    await replica.begin()
    serving = [asyncio.create_task(server.serve(sockets=[listener])) for server, listener in pairs]
    coming = asyncio.create_task(replica.come_up())
    stopping = asyncio.create_task(stop.wait())
    port = pairs[0][1].getsockname()[1]
    log.info("serving", replica=settings.replica_id, port=port, redis=bool(settings.redis_url))
    try:
        await asyncio.wait([stopping, *serving], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            await replica.drain()
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
    """Run a replica in this process; SIGTERM or SIGINT drains it. Returns the exit code."""
    import uvloop

    logs.configure(settings.log_level, settings.log_format)

    async def main() -> bool:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        try:
            await run(settings, stop)
        except CannotListen as error:
            log.error(str(error))
            return False
        return stop.is_set()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        asked_to_stop = runner.run(main())
    return 0 if asked_to_stop else 1
