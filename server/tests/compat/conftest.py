"""The real server, once as one process in memory and once as two replicas on a Redis, and the two plain clients."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from moorage.client import sign_in

from ..valkey import Valkey, free_port
from .peers import NodePeer, Peer, PythonPeer, require_node

START_BOUND_S = 30.0
STOP_BOUND_S = 10.0


@dataclass
class Site:
    """Where to connect: daemons at `first`, callers at `last`, another replica if there is one."""

    first: str
    last: str


def serve(
    redis_url: str | None, log: Path, *, drain_ms: int = 200
) -> tuple[subprocess.Popen[bytes], str, Path]:
    port = free_port()
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    env |= {
        "PORT": str(port),
        "METRICS_ENABLED": "false",
        "MOORAGE_HOST": "127.0.0.1",
        "MOORAGE_DRAIN_MS": str(drain_ms),
        "SECRET_KEY": "a key for tests that is long enough",
        "REDIS_URL": redis_url or "",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "moorage.cli", "serve"], env=env, stdout=output, stderr=subprocess.STDOUT
        )
    return process, f"http://127.0.0.1:{port}", log


def wait_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_BOUND_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/ready", timeout=2) as answer:
                answer.read()
                return
        except (urllib.error.URLError, OSError):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"moorage serve is not ready:\n{log.read_text(errors='replace')}")
            time.sleep(0.05)


def end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    all_of_them = list(processes)
    for process in all_of_them:
        process.terminate()
    for process in all_of_them:
        try:
            process.wait(STOP_BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_BOUND_S)


@pytest.fixture(scope="session", params=["one process", "two replicas"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    valkey = Valkey() if request.param == "two replicas" else None
    servers: list[tuple[subprocess.Popen[bytes], str, Path]] = []
    try:
        if valkey is not None:
            valkey.start()
        folder = tmp_path_factory.mktemp("serve")
        url = valkey.url if valkey else None
        names = ["first", "second"] if valkey else ["only"]
        servers += [serve(url, folder / f"{name}.log") for name in names]
        for server in servers:
            wait_ready(*server)
        yield Site(servers[0][1], servers[-1][1])
    finally:
        end(process for process, _, _ in servers)
        if valkey is not None:
            valkey.stop()


@pytest.fixture
async def token(site: Site) -> str:
    """Of a new account."""
    return await sign_in(site.first, Ed25519PrivateKey.generate())


MakePeer = Callable[..., Awaitable[Peer]]


@pytest.fixture(params=["python-socketio", pytest.param("socket.io-client", marks=pytest.mark.node)])
async def peer(request: pytest.FixtureRequest, token: str) -> AsyncIterator[MakePeer]:
    """`await peer(url, **auth)` connects a plain client."""
    if request.param == "socket.io-client":
        require_node()
    made: list[Peer] = []

    async def make(url: str, *, transports: tuple[str, ...] = ("websocket",), **auth: Any) -> Peer:
        client: Peer = NodePeer() if request.param == "socket.io-client" else PythonPeer()
        made.append(client)
        await client.connect(url, {"token": token, **auth}, transports)
        return client

    yield make
    for client in made:
        await client.close()
