"""One round: the clients of a cluster, warmed, and each phase's figures."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from moorage_chaos.bench import crowd, logs, remote, returns
from moorage_chaos.bench.asking import Asker, asker
from moorage_chaos.bench.client import BenchError, HttpConnection, SocketClient, connect, open_http
from moorage_chaos.bench.crowd import LARGE, SMALL, Crowd
from moorage_chaos.bench.figures import Phase
from moorage_chaos.bench.loads import Calls, Fan, Pair, run_calls
from moorage_chaos.bench.processes import Process, cpu_seconds
from moorage_chaos.bench.servers import MOORAGE, PATH, Cluster, make_token

PAIRS = 8
"""[pairs] Of caller and daemon."""
BETWEEN = 2
"""[replicas] That carry the calls, half of them in each direction, however many replicas there are: the load is the
same at each size of the cluster, and what differs is what the size costs."""
IN_FLIGHT = 64
"""[calls] Of all pairs together in the phase ``concurrent``."""
SOCKETS = 40
"""[sockets] User-scoped, on each replica, that receive every broadcast."""
FAN_ACCOUNT = "bench-fan"
FAN_ROOM = f"user:{FAN_ACCOUNT}:user-scoped"
LINKS = 4
"""[connections] HTTP, to each replica, that broadcasts are posted by."""
WINDOW = 8
"""[broadcasts] Under way at once in the phase ``flood``."""
REGISTER_S = 15.0
"""[s] Bound of all registrations; the protocol allows 1.5 s."""
PACED_RATE = 20_000
"""[deliveries/s] Of the phase ``paced``: what both servers carry on two cores with room to spare."""


TIMED: frozenset[Phase] = frozenset(
    {"remote", "asking", "asking-busy", "dying", "crowd", "churn", "returns", "standstill", "log"}
)


@dataclass(frozen=True, slots=True)
class Durations:
    """[s] Of warming up, and of each phase; and the sizes of the crowd."""

    warm: float = 1.5
    phase: float = 2.0
    crowd: Crowd = LARGE
    returns: int = returns.RETURNS
    """Of each client that is cut."""


QUICK = Durations(warm=0.7, phase=0.7, crowd=SMALL, returns=5)


@dataclass(slots=True)
class Yield:
    """What one phase gave: figures, and the client's own share of one core while it ran."""

    values: dict[str, float] = field(default_factory=dict)
    client_share: float = 0.0


def percentile(ordered: list[float], share: float) -> float:
    """The nearest-rank percentile of ascending values."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def call_figures(calls: Calls) -> dict[str, float]:
    """``rpc-p50-sequential`` and ``rpc-p99-sequential`` [ms], ``rpc-rate-1`` [calls/s].

    Raises :class:`BenchError` when no call ended.
    """
    if not calls.latencies:
        raise BenchError("no call ended within the phase")
    ordered = sorted(calls.latencies)
    return {
        "rpc-p50-sequential": percentile(ordered, 0.5) * 1e3,
        "rpc-p99-sequential": percentile(ordered, 0.99) * 1e3,
        "rpc-rate-1": len(ordered) / calls.seconds,
    }


class Rig:
    """The load client, connected to a cluster. Build with :func:`rig`."""

    def __init__(self, cluster: Cluster, durations: Durations) -> None:
        self._cluster = cluster
        self._durations = durations
        self.clients: list[SocketClient] = []
        self.pairs: list[Pair] = []
        self.fan: Fan | None = None
        self.stream: remote.Stream | None = None

    @property
    def processes(self) -> list[Process]:
        """The replicas."""
        return self._cluster.processes

    async def _connect(self, replica: int, auth: dict[str, str]) -> tuple[SocketClient, str]:
        client, payload = await connect(self._cluster.ports[replica], PATH, auth)
        self.clients.append(client)
        return client, str(payload.get("replica", f"port {self._cluster.ports[replica]}"))

    async def connect_pairs(self, count: int) -> None:
        """Callers and daemons, provably on different replicas; warmed."""
        token = make_token(self._cluster.secret, "bench-rpc")
        for number in range(count):
            daemon, there = await self._connect(
                (number + 1) % BETWEEN,
                {"token": token, "clientType": "machine-scoped", "machineId": f"bench-{number}"},
            )
            caller, here = await self._connect(
                number % BETWEEN, {"token": token, "clientType": "user-scoped"}
            )
            if here == there:
                raise BenchError(f"caller and daemon of pair {number} are both on replica {here}")
            pair = Pair(caller, daemon, f"bench-{number}:echo")
            pair.register()
            self.pairs.append(pair)
        try:
            async with asyncio.timeout(REGISTER_S):
                await asyncio.gather(*(pair.registered for pair in self.pairs))
        except TimeoutError:
            raise BenchError(f"a method is not registered after {REGISTER_S:g} s") from None

    async def connect_fan(self) -> None:
        """The sockets that receive broadcasts and the connections that send them."""
        token = make_token(self._cluster.secret, FAN_ACCOUNT)
        sockets = []
        for replica in range(len(self._cluster.ports)):
            for _ in range(SOCKETS):
                client, _ = await self._connect(replica, {"token": token, "clientType": "user-scoped"})
                sockets.append(client)
        self.fan = Fan(sockets, await self._links(), token)

    async def _links(self) -> list[HttpConnection]:
        return [await open_http(port) for _ in range(LINKS) for port in self._cluster.ports]

    async def ready_fan(self) -> Fan:
        """The broadcasts' load, with connections that stand."""
        assert self.fan is not None
        self.fan.use(await self._links())
        return self.fan

    async def connect_stream(self) -> None:
        """A socket on the second replica; what is emitted comes from the first one."""
        token = make_token(self._cluster.secret, "bench-remote")
        client, _ = await self._connect(1, {"token": token, "clientType": "user-scoped"})
        self.stream = remote.Stream(client, token)

    async def ready_stream(self) -> remote.Stream:
        """The load of emits to another replica, with connections that stand."""
        assert self.stream is not None
        self.stream.use([await open_http(self._cluster.ports[0]) for _ in range(remote.LINKS)])
        return self.stream

    async def warm(self) -> None:
        """Run every kind of load that was connected, so that caches and just-in-time compilers are warm."""
        if self.pairs:
            await run_calls(self.pairs, IN_FLIGHT // PAIRS, self._durations.warm)
        if self.fan is not None:
            await (await self.ready_fan()).flood(self._durations.warm / 2, WINDOW)
        if self.stream is not None:
            await (await self.ready_stream()).run(self._durations.warm / 2)

    def close(self) -> None:
        """Drop every connection."""
        for client in self.clients:
            client.close()
        for load in (self.fan, self.stream):
            if load is not None:
                load.close()

    def _servers_cpu(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self._cluster.processes)

    def _redis_cpu(self) -> float:
        return cpu_seconds(self._cluster.redis.process.pid)

    async def run(self, phase: Phase) -> Yield:
        """One phase. Raises :class:`BenchError` when anything failed in it: such a figure would be worth nothing."""
        result = Yield()
        gc.collect()
        gc.disable()
        try:
            wall, own = time.perf_counter(), time.process_time()
            result.values = await (self._timed(phase) if phase in TIMED else self._counted(phase))
            result.client_share = (time.process_time() - own) / (time.perf_counter() - wall)
        except BenchError as error:
            raise BenchError(f"phase {phase}: {error}") from error
        finally:
            gc.enable()
        if phase != "dying":
            self._cluster.check()
            if any(client.lost for client in self.clients):
                raise BenchError(f"connections were lost in the phase {phase}")
        return result

    async def _counted(self, phase: Phase) -> dict[str, float]:
        """Figures that the servers' and Redis's CPU time is part of."""
        servers, redis = self._servers_cpu(), self._redis_cpu()
        done = await self._load(phase)
        return done(self._servers_cpu() - servers, self._redis_cpu() - redis)

    async def _load(self, phase: Phase) -> Callable[[float, float], dict[str, float]]:
        """Run the load; what is returned makes the figures of the servers' and Redis's CPU seconds."""
        seconds = self._durations.phase
        if phase in ("flood", "paced"):
            return await self._broadcasts(phase, seconds)
        if phase == "idle":
            await asyncio.sleep(seconds)
            share = 1e3 / seconds / len(self.processes)
            return lambda servers, _redis: {"idle-cpu-per-replica": servers * share}
        if phase == "sequential":
            alone = await run_calls(self.pairs[:1], 1, seconds)
            return lambda _servers, _redis: call_figures(alone)
        calls = await run_calls(self.pairs, IN_FLIGHT // PAIRS, seconds)
        count = max(1, calls.ended)
        return lambda servers, redis: {
            "rpc-rate-64": len(calls.latencies) / calls.seconds,
            "rpc-cpu-per-call": servers / count * 1e6,
            "rpc-redis-cpu-per-call": redis / count * 1e6,
        }

    async def _broadcasts(self, phase: Phase, seconds: float) -> Callable[[float, float], dict[str, float]]:
        fan = await self.ready_fan()
        if phase == "flood":
            rate = await fan.flood(seconds, WINDOW)
            return lambda _servers, _redis: {"broadcast-rate": rate}
        deliveries = await fan.pace(seconds, PACED_RATE / fan.size)
        return lambda servers, redis: {
            "broadcast-cpu-per-delivery": servers / max(1, deliveries) * 1e6,
            "broadcast-redis-cpu-per-delivery": redis / max(1, deliveries) * 1e6,
        }

    async def _timed(self, phase: Phase) -> dict[str, float]:
        """Figures that CPU time is no part of."""
        seconds = self._durations.phase
        if phase in ("crowd", "churn"):
            return await self._crowd(phase)
        if phase == "log":
            return await logs.run(self._cluster, seconds)
        if phase == "returns":
            token = make_token(self._cluster.secret, "bench-returns")
            return await returns.recoveries(self._cluster.ports, token, self._durations.returns)
        if phase == "standstill":
            token = make_token(self._cluster.secret, "bench-standstill")
            return await returns.standstill(self._cluster.ports, token, self._cluster.redis.process.pid)
        if phase == "remote":
            latencies = await self._stream_for(seconds)
            return {
                "remote-emit-p50-ms": percentile(latencies, 0.5) * 1e3,
                "remote-emit-p99-ms": percentile(latencies, 0.99) * 1e3,
            }
        assert self.fan is not None
        async with asker(self._cluster.redis.url, FAN_ROOM, self.fan.size) as asking:
            if phase == "dying":
                victim = self.processes[-1]
                return {"fetch-sockets-dead-peer-ms": await asking.ask_while_dying(victim) * 1e3}
            return await self._ask(asking, phase, seconds)

    async def _crowd(self, phase: Phase) -> dict[str, float]:
        token = make_token(self._cluster.secret, "bench-crowd")
        pid, port, sizes = self.processes[0].pid, self._cluster.ports[0], self._durations.crowd
        if phase == "churn":
            return {"rss-growth-kib": await crowd.growth_kib(pid, port, token, sizes)}
        values = {"rss-per-websocket-kib": await crowd.per_socket_kib(pid, port, token, sizes.live)}
        if self._cluster.kind is MOORAGE:
            values["disconnect-ms"] = await crowd.disconnect_ms()
        return values

    async def _ask(self, asking: Asker, phase: Phase, seconds: float) -> dict[str, float]:
        if phase == "asking":
            return {"fetch-sockets-p99-ms": percentile(sorted(await asking.run(seconds)), 0.99) * 1e3}
        asked, _ = await asyncio.gather(asking.run(seconds), self._stream_for(seconds))
        return {"fetch-sockets-p99-busy-ms": percentile(sorted(asked), 0.99) * 1e3}

    async def _stream_for(self, seconds: float) -> list[float]:
        """Ascending latencies [s] of emits to another replica."""
        stream = await self.ready_stream()
        stream.latencies.clear()
        await stream.run(seconds)
        if not stream.latencies:
            raise BenchError("no emit ended within the phase")
        return sorted(stream.latencies)


@asynccontextmanager
async def rig(cluster: Cluster, phases: Sequence[Phase], durations: Durations) -> AsyncIterator[Rig]:
    """Wait for the cluster, connect what ``phases`` need, warm it. Raises :class:`BenchError`."""
    made = Rig(cluster, durations)
    try:
        await cluster.wait()
        if {"sequential", "concurrent"} & set(phases):
            await made.connect_pairs(PAIRS)
        if {"flood", "paced", "asking", "asking-busy", "dying"} & set(phases):
            await made.connect_fan()
        if {"remote", "asking-busy"} & set(phases):
            await made.connect_stream()
        try:
            await made.warm()
        except BenchError as error:
            raise BenchError(f"warming up: {error}") from error
        yield made
    finally:
        made.close()
