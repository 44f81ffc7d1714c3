"""The servers that are measured, and how one of them becomes a cluster on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jwt

from moorage_chaos.bench.client import BenchError
from moorage_chaos.bench.processes import START_S, Process, Redis, free_port, wait_ready

PATH = "/v1/updates"
"""Path of the Socket.IO endpoint (protocol page)."""
ISSUER = "moorage"
"""``iss`` of the tokens (settings: ``MOORAGE_TOKEN_ISSUER``)."""
MISSING_NODE = "Node or its packages are missing: run `make node` to have Node's figures beside ours"


def node_folder() -> Path:
    """``chaos/peers/node`` of the checkout that this package lives in."""
    return Path(__file__).resolve().parents[2] / "peers" / "node"


def node_versions() -> dict[str, str] | None:
    """Versions of Node and of the packages it runs; None when ``make node`` has not been run here."""
    node = shutil.which("node")
    if node is None or not (node_folder() / "node_modules").is_dir():
        return None
    asked = subprocess.run(
        [node, "server.js", "--versions"],
        cwd=node_folder(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    if asked.returncode != 0:
        return None
    found: dict[str, str] = json.loads(asked.stdout)
    return found


def peer_name(versions: Mapping[str, str]) -> str:
    """One line that names the peer: ``node 20.1.0, socket.io 4.8.4, …``."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def make_token(secret: str, account: str) -> str:
    """A token of ``account`` for one hour, as ``/v1/auth`` would issue it."""
    now = int(time.time())
    return jwt.encode(
        {"sub": account, "iss": ISSUER, "iat": now, "exp": now + 3600}, secret, algorithm="HS256"
    )


@dataclass(frozen=True, slots=True)
class Kind:
    """One server: its command, what of the environment is its own, the route that says it is ready."""

    name: str
    command: Callable[[bool], list[str]]
    """Given whether to sample a profile."""
    env: Callable[[int], dict[str, str]]
    """Given the replica's number."""
    ready: str
    cwd: Path | None = None
    channel: str = ""
    """Pub/sub channel that every replica subscribes to; empty: ``ready`` says all."""


def _moorage(sampled: bool) -> list[str]:
    module = ["moorage_chaos.bench.sampler"] if sampled else ["moorage.cli"]
    return [sys.executable, "-m", *module, "serve"]


MOORAGE = Kind(
    name="moorage",
    command=_moorage,
    env=lambda number: {
        "METRICS_PORT": str(free_port()),
        "MOORAGE_HOST": "127.0.0.1",
        "MOORAGE_REPLICA_ID": f"bench-{number}-{secrets.token_hex(3)}",
    },
    ready="/ready",
)
NODE = Kind(
    name="node",
    command=lambda _sampled: ["node", "server.js"],
    env=lambda _number: {"NODE_ENV": "production"},
    ready="/health",
    cwd=node_folder(),
    # Node listens before its adapter has subscribed; a request to a peer that has not is never answered.
    channel="socket.io#/#",
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in (MOORAGE, NODE)}


@dataclass(slots=True)
class Cluster:
    """Replicas of one server that share one Redis."""

    kind: Kind
    redis: Redis
    secret: str
    ports: list[int]
    processes: list[Process]

    def check(self) -> None:
        """Raises :class:`BenchError` when a replica or Redis has ended."""
        for process in (*self.processes, self.redis.process):
            process.check()

    async def wait(self) -> None:
        """Until every replica is ready. Raises :class:`BenchError`."""
        waits = (
            wait_ready(process, port, self.kind.ready)
            for process, port in zip(self.processes, self.ports, strict=True)
        )
        await asyncio.gather(*waits)
        until = time.monotonic() + START_S
        while self.kind.channel and (count := self.redis.subscribers(self.kind.channel)) != len(self.ports):
            if time.monotonic() > until:
                raise BenchError(f"{self.kind.channel} has {count} subscribers, not one of each replica")
            self.redis.touch(self.kind.channel)
            await asyncio.sleep(0.05)


@contextmanager
def cluster(
    kind: Kind,
    replicas: int,
    redis: Redis,
    folder: Path,
    *,
    sampled: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """Start ``replicas`` of ``kind`` on an emptied Redis; they are ended when left.

    Log files go to ``folder``. Nothing of the caller's ``MOORAGE_*`` environment reaches the replicas: what is
    measured are the defaults, but for ``settings``.
    """
    redis.command("FLUSHALL")
    secret = secrets.token_urlsafe(48)
    base = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")}
    started = Cluster(kind, redis, secret, [], [])
    try:
        for number in range(replicas):
            port = free_port()
            env = base | {"PORT": str(port), "REDIS_URL": redis.url, "SECRET_KEY": secret} | kind.env(number)
            env |= settings or {}
            name = f"{kind.name} replica {number}"
            log = folder / f"{kind.name}-{replicas}-{number}.log"
            started.processes.append(Process(name, kind.command(sampled), env, log, kind.cwd))
            started.ports.append(port)
        yield started
    except FileNotFoundError as error:
        raise BenchError(f"cannot start {kind.name}: {error}") from error
    finally:
        # Nothing of a drain is measured here, and a drain of eight replicas would take longer than the load.
        for process in started.processes:
            process.stop(gently=False)
