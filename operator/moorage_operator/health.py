"""GET /healthz (liveness), /readyz, /metrics. Liveness fails when reconciling is stuck, not when Kubernetes is."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from moorage_operator.metrics import Metrics

STUCK_SECONDS = 150.0
"""[s] A pass is bounded at 60 s and errors wait in the backoff, so work that is this overdue will never be done."""


class Health:
    """``oldest``: how long [s] the most overdue work has waited; None before there is a queue (a standby)."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.oldest: Callable[[], float] | None = None
        self.started = False
        self._runner: web.AppRunner | None = None

    @property
    def stuck(self) -> bool:
        return self.oldest is not None and self.oldest() > STUCK_SECONDS

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port (0 asks for a free one)."""
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._text),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        address: tuple[str, int] = self._runner.addresses[0]
        return address[1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        if self.stuck and self.oldest is not None:
            return web.Response(status=503, text=f"stuck: work waits for {self.oldest():.0f} s\n")
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        return web.Response(text="leader\n" if self.started else "standby\n")

    async def _text(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.text(), content_type="text/plain", charset="utf-8")
