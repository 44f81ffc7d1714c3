"""Composes a worker: a process that runs tasks and serves nobody. Its metrics are the only thing it listens for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping

import structlog

from moorage.errors import ConfigurationError
from moorage.events.log import EventLog
from moorage.listening import listen, metrics_server
from moorage.metrics import Metrics
from moorage.process import Stop, run_process
from moorage.settings import Settings
from moorage.storage.backplane import Backplane
from moorage.storage.tasks_redis import RedisTasks
from moorage.tasks.handlers import Handler, load
from moorage.tasks.runner import Runner

log = structlog.get_logger("moorage")

REMIND_S = 60.0
"""[s] How often the log is told that a Redis is still out of reach: the links themselves say it once."""

START_BOUND_S = 5.0
"""A worker waits this long for Redis before it takes its first task; later the log is told to be away."""


class Worker:
    """One worker; ``settings`` has a ``redis_url``. :meth:`start` before it works, then :meth:`stop`."""

    def __init__(self, settings: Settings, handlers: Mapping[str, Handler]) -> None:
        redis_url, state_url = settings.redis_url, settings.effective_state_url
        assert redis_url is not None
        assert state_url is not None
        self.settings = settings
        self.metrics = Metrics()
        name = f"moorage:{settings.replica_id}"
        self.backplane = Backplane(
            redis_url,
            name=name,
            ca_file=settings.redis_ca_file,
            timeout_ms=settings.redis_timeout_ms,
            stall_ms=settings.redis_stall_ms,
        )
        self.events = EventLog(self.backplane, settings)
        self.store = RedisTasks(
            state_url, name=name, ca_file=settings.redis_ca_file, timeout_ms=settings.redis_timeout_ms
        )
        self.runner = Runner(settings, self.store, self.events, handlers, together=state_url == redis_url)
        self._reminding: asyncio.Task[None] | None = None
        self._compose_metrics()

    def _compose_metrics(self) -> None:
        self.metrics.follow(self.events)
        self.runner.watch(self.metrics)

    async def start(self) -> None:
        """Returns when tasks are taken; waits for Redis at most :data:`START_BOUND_S`."""
        self._reminding = asyncio.create_task(self._remind())
        await self.events.start()
        await self.store.start()
        await self.backplane.start(START_BOUND_S)
        self.runner.start()
        log.info("working", worker=self.settings.replica_id)

    async def _remind(self) -> None:
        while True:
            await asyncio.sleep(REMIND_S)
            there = {"REDIS_URL": self.backplane.available, "STATE_URL": self.runner.attempts.reached}
            away = [name for name, reached in there.items() if not reached]
            if away:
                log.warning("waiting for Redis", away=away, tasks=len(self.runner))

    async def drain(self) -> None:
        """What runs has the drain window to end, then it is handed back."""
        await self.runner.stop(self.settings.drain_ms / 1000)

    async def stop(self) -> None:
        """What runs still is handed back at once; then all links are closed."""
        await self.runner.stop(0)
        if self._reminding is not None:
            self._reminding.cancel()
            await asyncio.wait([self._reminding])
        await self.events.stop()
        await self.backplane.stop()
        await self.store.stop()


async def run(settings: Settings, handlers: Mapping[str, Handler], stop: Stop) -> None:
    """Work until ``stop`` is set. Raises CannotListen before anything is started."""
    worker = Worker(settings, handlers)
    with contextlib.ExitStack() as listeners:
        serving: list[asyncio.Task[None]] = []
        if settings.metrics_enabled:
            listener = listen(settings.host, settings.metrics_port, "METRICS_PORT")
            listeners.callback(listener.close)
            server = metrics_server(worker.metrics)
            serving.append(asyncio.create_task(server.serve(sockets=[listener])))
        starting = asyncio.create_task(worker.start())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([stopping, starting, *serving], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await asyncio.wait([stopping, *serving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await stop.patience(worker.drain())
            await worker.stop()
            for one in serving:
                server.should_exit = True
                await asyncio.wait([one])


def main(settings: Settings) -> int:
    """Run a worker in this process; SIGTERM or SIGINT ends it, another SIGINT at once. Returns the exit code. Raises
    :class:`~moorage.errors.ConfigurationError` before anything is started."""
    if settings.redis_url is None:
        raise ConfigurationError(
            "REDIS_URL is required by a worker; without Redis `moorage serve` runs the tasks itself"
        )
    handlers = load(settings.tasks)
    return run_process(settings, lambda stop: run(settings, handlers, stop))
