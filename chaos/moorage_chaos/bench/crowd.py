"""Many sockets that do nothing: what one of them costs in memory, and whether coming and going leaves anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from moorage.cluster.local import LocalManager
from moorage_chaos.bench.client import BenchError, SocketClient, connect
from moorage_chaos.bench.servers import PATH

AT_ONCE = 50
"""[connections] Being made at the same time."""
REST_S = 1.0
"""[s] Between connecting and looking at the memory, so that what was under way is done."""
WARM_WAVES = 2
"""In which the pools of the allocator still grow to what a wave needs at its fullest (measured over 30 waves: +1.5 MiB,
+0.9 MiB, then nothing)."""
COMPARED = 3
MANAGED = 50_000
"""[sockets] Of the manager alone, on transports that are none (issue 7)."""
ROOMS_EACH = 3
LEAVING = 5_000
"""[sockets] Of them that leave, timed together."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """How many are connected at once, and in all."""

    live: int
    total: int


LARGE = Crowd(5_000, 50_000)
"""Of issue 7, in connects; descriptors are limited in many places."""
SMALL = Crowd(500, 2_000)


def resident_kib(pid: int) -> float:
    """[KiB] Memory of a process that is in RAM. Raises :class:`BenchError` when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return float(line.split()[1])
    except (FileNotFoundError, ProcessLookupError):
        pass
    raise BenchError(f"process {pid} is gone")


async def gather_crowd(port: int, token: str, count: int) -> list[SocketClient]:
    """``count`` connected clients. Raises :class:`BenchError` when one is refused."""
    numbers = iter(range(count))
    clients: list[SocketClient] = []

    async def some() -> None:
        for number in numbers:
            auth = {"token": token, "clientType": "machine-scoped", "machineId": f"crowd-{number}"}
            client, _ = await connect(port, PATH, auth)
            clients.append(client)

    await asyncio.gather(*(some() for _ in range(min(AT_ONCE, count))))
    return clients


async def dismiss(clients: list[SocketClient]) -> None:
    """Close them and wait until their connections are gone here. Raises :class:`BenchError`."""
    for client in clients:
        client.close()
    until = time.monotonic() + 10
    while not all(client.lost for client in clients):
        if time.monotonic() > until:
            raise BenchError("connections do not close")
        await asyncio.sleep(0.01)


async def _standing_kib(pid: int, port: int, token: str, count: int) -> float:
    """[KiB] Memory of the server with ``count`` sockets, which are gone again afterwards."""
    clients = await gather_crowd(port, token, count)
    await asyncio.sleep(REST_S)
    if any(client.lost for client in clients):
        raise BenchError("connections of the crowd were lost")
    kib = resident_kib(pid)
    await dismiss(clients)
    return kib


async def per_socket_kib(pid: int, port: int, token: str, live: int) -> float:
    """[KiB] What each of ``live`` idle sockets adds to the server ``pid``. Raises :class:`BenchError`."""
    await dismiss(await gather_crowd(port, token, AT_ONCE * 4))
    await asyncio.sleep(REST_S)
    empty = resident_kib(pid)
    return (await _standing_kib(pid, port, token, live) - empty) / live


async def growth_kib(pid: int, port: int, token: str, crowd: Crowd) -> float:
    """[KiB] What is there with ``crowd.live`` sockets in the last waves of ``crowd.total`` connects, beyond what was
    there in the first waves after :data:`WARM_WAVES`: medians, since a page or two come and go with each wave. Raises
    :class:`BenchError`."""
    waves = [await _standing_kib(pid, port, token, crowd.live) for _ in range(crowd.total // crowd.live)]
    return grown(waves)


def grown(waves: Sequence[float]) -> float:
    """The median of the last waves beyond that of the first warm ones, three each; 0 if there is less."""
    warm = waves[WARM_WAVES:]
    return max(0.0, median(warm[-COMPARED:]) - median(warm[:COMPARED]))


async def disconnect_ms(managed: int = MANAGED, leaving: int = LEAVING) -> float:
    """[ms] Of one disconnect in a manager with ``managed`` sockets on transports that are none."""
    manager = LocalManager()
    sids = []
    for number in range(managed):
        sid = manager.basic_pre_connect(f"transport-{number}", "/", f"socket-{number}")
        assert sid is not None
        await manager.connect(sid, "/")
        for room in ("everybody", f"account-{number // 3}", f"only-{number}")[:ROOMS_EACH]:
            manager.join(sid, room)
        sids.append(sid)
    going = sids[:: max(1, managed // leaving)][:leaving]
    started = time.perf_counter()
    for sid in going:
        await manager.disconnect(sid, "/", ignore_queue=True)
    return (time.perf_counter() - started) / len(going) * 1e3
