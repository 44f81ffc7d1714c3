"""Replicas in network namespaces, so that the kernel loses their packets: a partition without a proxy's help.

Each replica gets a namespace with two wires (veth pairs) to the host: ``clients``, on which it listens, and ``redis``,
through which it reaches Redis. A direction of a wire is cut by giving its sender a wrong, permanent neighbour address:
frames go out and nobody takes them. Nothing is reset, nothing answers, and what is not acknowledged is sent again when
the wire is whole. Needs root and iproute2; the rows that ask for it use the front's proxies elsewhere.
"""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from moorage_chaos.drivers.base import DriverError, Evidence
from moorage_chaos.faults.base import Journal

BLOCK = ipaddress.ip_network("198.18.0.0/15")
"""For tests of networks (RFC 2544): no real network is hidden by a wire of ours."""
NOBODY = "02:00:00:00:00:01"
"""A locally administered address that no wire has."""
NAME_PREFIX = "mch"
"""Of namespaces and devices; these have at most 15 characters."""
COMMAND_BOUND_S = 10.0

Direction = Literal["both", "up", "down"]


async def _ip(*words: str) -> None:
    """Raises DriverError with what ``ip`` said."""
    process = await asyncio.create_subprocess_exec(
        "ip", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(COMMAND_BOUND_S):
            _, error = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise DriverError(f"ip {' '.join(words)} did not end") from None
    if process.returncode:
        raise DriverError(f"ip {' '.join(words)}: {error.decode(errors='replace').strip()}")


@dataclass
class Wire:
    """One veth pair. ``server_outside``: the server of what flows here is on the host's side (Redis)."""

    namespace: str
    device: str
    host: str
    """Address of the host's end."""
    inside: str
    """Address of the replica's end."""
    server_outside: bool
    cut: set[str] = field(default_factory=set)
    """Ends that send to nobody: ``host``, ``inside``."""

    async def make(self) -> None:
        outer, inner = f"{self.device}h", f"{self.device}i"
        await _ip("link", "add", outer, "type", "veth", "peer", "name", inner, "netns", self.namespace)
        await _ip("addr", "add", f"{self.host}/30", "dev", outer)
        await _ip("link", "set", outer, "up")
        await _ip("-n", self.namespace, "addr", "add", f"{self.inside}/30", "dev", inner)
        await _ip("-n", self.namespace, "link", "set", inner, "up")

    async def lose(self, direction: Direction) -> None:
        """``up`` is towards the server."""
        for end in ("inside", "host"):
            towards_server = (end == "inside") == self.server_outside
            if direction == "both" or (direction == "up") == towards_server:
                await _ip(*self._neighbour(end, "replace"), "lladdr", NOBODY, "nud", "permanent")
                self.cut.add(end)

    async def heal(self) -> None:
        for end in sorted(self.cut):
            await _ip(*self._neighbour(end, "del"))
            self.cut.discard(end)

    def _neighbour(self, end: str, verb: str) -> list[str]:
        if end == "inside":
            return ["-n", self.namespace, "neigh", verb, self.host, "dev", f"{self.device}i"]
        return ["neigh", verb, self.inside, "dev", f"{self.device}h"]


class Namespaces:
    """Those of one system."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._records: dict[str, int] = {}
        self._tag = secrets.token_hex(2)
        # One block for all wires, as two that drew the same addresses would have one route.
        self._addresses = _networks()
        self.clients: dict[str, Wire] = {}
        """Link of a replica to the wire that its clients use."""
        self.redis: dict[str, Wire] = {}

    @property
    def wires(self) -> dict[str, Wire]:
        """By the names that faults use: ``replica-1``, ``replica-1:redis``."""
        return self.clients | {f"{link}:redis": wire for link, wire in self.redis.items()}

    async def add(self, link: str) -> None:
        """A namespace and both wires for a replica. Raises DriverError."""
        name = f"{NAME_PREFIX}{self._tag}{len(self._records) + 1}"
        self._records[name] = self._journal.write({"do": "netns", "name": name})
        await _ip("netns", "add", name)
        await _ip("-n", name, "link", "set", "lo", "up")
        for kind, wires in (("c", self.clients), ("r", self.redis)):
            host, inside = next(self._addresses)
            wire = Wire(name, f"{name}{kind}", host, inside, kind == "r")
            await wire.make()
            wires[link] = wire

    def path(self, link: str) -> str:
        """Of its namespace as a file, for setns(2); empty for a process that has none (a worker)."""
        wire = self.clients.get(link)
        return str(Path("/run/netns") / wire.namespace) if wire is not None else ""

    async def remove(self) -> None:
        """With the namespace its devices go, and with each device its other end."""
        for name, number in list(self._records.items()):
            await _ip("netns", "del", name)
            self._journal.done(number)
            del self._records[name]
        self.clients.clear()
        self.redis.clear()

    async def lose(self, name: str, direction: Direction) -> Evidence:
        t = time.monotonic_ns()
        wire = self.wires[name]
        await wire.lose(direction)
        proof: dict[str, Any] = {"by": "the kernel", "silent": sorted(wire.cut), "direction": direction}
        return Evidence(t, "link-blackhole", name, proof)


def _networks() -> Iterator[tuple[str, str]]:
    """Both ends of one /30 after the other, from a place that nobody else is likely to have."""
    start = secrets.randbelow(BLOCK.num_addresses // 4)
    for number in itertools.count(start):
        first = int(BLOCK.network_address) + 4 * number % BLOCK.num_addresses
        yield str(ipaddress.ip_address(first + 1)), str(ipaddress.ip_address(first + 2))


def delete(name: str) -> str:
    """Remove a namespace that a dead harness left; what was done."""
    if not name.startswith(NAME_PREFIX):
        return f"left network namespace {name}: not ours"
    done = subprocess.run(
        ["ip", "netns", "del", name], capture_output=True, timeout=COMMAND_BOUND_S, check=False
    )
    return (
        f"removed network namespace {name}" if done.returncode == 0 else f"network namespace {name} is gone"
    )


def available() -> bool:
    """We may make namespaces: root, iproute2, and the kernel lets us (a container may not)."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"{NAME_PREFIX}{secrets.token_hex(3)}"
    made = subprocess.run(
        ["ip", "netns", "add", name], capture_output=True, timeout=COMMAND_BOUND_S, check=False
    )
    return made.returncode == 0 and delete(name).startswith("removed")
