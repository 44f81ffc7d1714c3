"""HTTP listeners of a process: ports of ours, uvicorn as we run it, ``GET /metrics`` and ``/health`` beside it."""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import uvicorn

from moorage.errors import CannotListen
from moorage.metrics import Metrics
from moorage.ticks import sleep_to_tick

BACKLOG = 4096
"""Connections that wait to be accepted: a thousand clients that come back at once are normal."""
LINGER_S = 2
"""How long answers under way may take after the drain."""
KEEP_ALIVE_S = 75
"""Idle HTTP connections stay longer than the 60 s of common load balancers, which else send into a closed one."""

COMMON: dict[str, Any] = {
    "timeout_keep_alive": KEEP_ALIVE_S,
    "lifespan": "off",
    "log_config": None,
    "access_log": False,
    "server_header": False,
    "backlog": BACKLOG,
    "timeout_graceful_shutdown": LINGER_S,
}
"""Of every ``uvicorn.Config`` here."""


class Server(uvicorn.Server):
    """uvicorn without its signal handlers: a signal begins a drain, and the drain ends the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """As uvicorn's, ten times a second, but when all else ticks."""
        for counter in itertools.count():
            if await self.on_tick(counter):
                return
            await sleep_to_tick(0.1)


def listen(host: str, port: int, variable: str) -> socket.socket:
    """A listening socket. Raises :class:`~moorage.errors.CannotListen` that names ``variable``."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CannotListen(f"{variable}={port}: cannot listen on {host}: {reason}") from None


def metrics_server(metrics: Metrics) -> Server:
    """Serves ``GET /metrics``, and ``GET /health`` for processes that have no other listener, as long as the loop
    turns."""
    return Server(uvicorn.Config(_metrics_app(metrics), ws="none", **COMMON))


def _metrics_app(metrics: Metrics) -> Any:
    async def app(scope: Any, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"].rstrip("/") if scope["method"] in ("GET", "HEAD") else ""
        status = 200 if path in ("/metrics", "/health") else 404
        if path == "/metrics":
            body, kind = metrics.render()
        elif path == "/health":
            body, kind = b'{"status":"ok"}', "application/json"
        else:
            body, kind = b"Not found\n", "text/plain"
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app
