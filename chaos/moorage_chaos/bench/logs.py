"""The event log under load: a worker reports, Redis logs, replicas push, readers receive.

Everything is the product's own, but for the readers: `moorage worker` with a handler of ours, two replicas. On two
cores worker, Redis, replicas and readers share them.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from moorage_chaos.bench.client import BenchError, ask, http_request, open_http
from moorage_chaos.bench.log_clients import LogReader, follow
from moorage_chaos.bench.processes import Process, Redis, cpu_seconds, free_port, wait_ready
from moorage_chaos.bench.reports import MODULE
from moorage_chaos.bench.servers import Cluster, make_token

ACCOUNT = "bench-log"
REPORTERS = 64
"""[tasks] That report at the same time, each in a session of its own, as many as calls in the phase concurrent."""
PACE_MS = 12.0
"""[ms] Between two reports of each of them when paced: 5000 a second of all, as the goal of ``log-rate`` has it."""
RESUMES, RESUMED_SESSIONS = 1000, 100
"""[readers] That come back at once, ten of each session, as after the loss of a replica (issue 6)."""
LISTENERS = 8
"""[connections] To the live channel that only listen, to see what one more costs Redis."""
PAUSES_S = (0.8, 1.6, 3.2, 6.4)
"""[s] Between the tries of a reader (PROTOCOL, "Clients")."""
TASK_S = 30.0
"""[s] From the end of a task's reports to its result."""


@dataclass(slots=True)
class Load:
    """Sessions of one account and the worker that reports into them."""

    cluster: Cluster
    worker: Process
    token: str
    sessions: list[str]

    async def request(self, verb: str, path: str, body: Any = None) -> Any:
        """One HTTP request to the first replica. Raises :class:`BenchError`."""
        link = await open_http(self.cluster.ports[0])
        try:
            data = orjson.dumps(body) if body is not None else b""
            status, answer = await ask(link, http_request(verb, path, self.token, data), 10.0)
        finally:
            link.close()
        if status not in (200, 202):
            raise BenchError(f"{verb} {path} answered {status} {answer[:200]!r}")
        return orjson.loads(answer)

    async def add_sessions(self, count: int) -> None:
        while len(self.sessions) < count:
            tag = secrets.token_hex(8)
            made = await self.request("POST", "/v1/sessions", {"tag": tag, "metadata": ""})
            self.sessions.append(made["session"]["id"])

    async def report(self, sessions: list[str], seconds: float, pause_ms: float = 0) -> list[dict[str, Any]]:
        """A task in each session; their results. Raises :class:`BenchError`."""
        task = {"handler": "bench-reports", "input": {"seconds": seconds, "pauseMs": pause_ms}}
        begun = [await self.request("POST", f"/v1/sessions/{one}/tasks", task) for one in sessions]
        results = []
        async with asyncio.timeout(seconds + TASK_S):
            for one in begun:
                while (told := await self.request("GET", f"/v1/tasks/{one['taskId']}"))["status"] != "done":
                    if told["status"] == "failed":
                        raise BenchError(f"a task of the bench failed: {told}")
                    await asyncio.sleep(0.2)
                results.append(told["result"])
        return results


@contextmanager
def worker(cluster: Cluster, folder: Path) -> Iterator[tuple[Process, int]]:
    """`moorage worker` on the cluster's Redis, and the port of its metrics; ended when left."""
    port = free_port()
    env = {name: value for name, value in os.environ.items() if not name.startswith("MOORAGE_")} | {
        "REDIS_URL": cluster.redis.url,
        "SECRET_KEY": cluster.secret,
        "METRICS_PORT": str(port),
        "MOORAGE_HOST": "127.0.0.1",
        "MOORAGE_TASKS": MODULE,
        "MOORAGE_WORKER_CONCURRENCY": str(REPORTERS),
        "MOORAGE_REPLICA_ID": f"bench-worker-{secrets.token_hex(3)}",
    }
    command = [sys.executable, "-m", "moorage.cli", "worker"]
    process = Process("the worker", command, env, folder / "worker.log", None)
    try:
        yield process, port
    finally:
        process.stop(gently=False)


@asynccontextmanager
async def load(cluster: Cluster, folder: Path) -> AsyncIterator[Load]:
    """Raises :class:`BenchError`."""
    with worker(cluster, folder) as (process, port):
        await wait_ready(process, port, "/metrics")
        made = Load(cluster, process, make_token(cluster.secret, ACCOUNT), [])
        await made.add_sessions(REPORTERS)
        yield made


async def run(cluster: Cluster, seconds: float) -> dict[str, float]:
    """All figures of the event log, ``log-…`` and ``resume-…``. Raises :class:`BenchError`."""
    with tempfile.TemporaryDirectory(prefix="moorage-bench-log-") as folder:
        try:
            return await _measure(cluster, Path(folder), seconds)
        except TimeoutError as error:
            raise BenchError("tasks or replays of the event log did not end in time") from error


async def _measure(cluster: Cluster, folder: Path, seconds: float) -> dict[str, float]:
    async with load(cluster, folder) as made:
        values = await append_alone(made, seconds)
        values |= await paced(made, seconds)
        values |= await flood(made, seconds)
        values |= await replay_cost(made)
        await made.add_sessions(RESUMED_SESSIONS)
        return values | await resumes(made)


async def append_alone(made: Load, seconds: float) -> dict[str, float]:
    """What a handler waits for one append, with nothing else going on."""
    [result] = await made.report(made.sessions[:1], seconds, pause_ms=2)
    return {"log-append-p50-ms": float(result["appendMs"][len(result["appendMs"]) // 2])}


async def paced(made: Load, seconds: float) -> dict[str, float]:
    """How long events are on their way at about the rate of the goal, so that no queue hides the way."""
    readers = [await follow(made.cluster.ports[1], made.token, session) for session in made.sessions]
    try:
        reporting = asyncio.create_task(made.report(made.sessions, seconds + 1.0, PACE_MS))
        await asyncio.sleep(1.0)  # all tasks have begun
        for reader in readers:
            reader.measuring = True
        await reporting
    finally:
        for reader in readers:
            reader.close()
    latencies = sorted(t for reader in readers for t in reader.took)
    if not latencies:
        raise BenchError("no paced event arrived")
    return {
        "log-p99-ms": latencies[int(len(latencies) * 0.99)] / 1e6,
        "log-paced-rate": len(latencies) / seconds,
    }


async def flood(made: Load, seconds: float) -> dict[str, float]:
    """Every session has its reader at the second replica; the first has none, and hears of every event all the same."""
    here, there = made.cluster.processes[0], made.cluster.processes[1]
    readers = [await follow(made.cluster.ports[1], made.token, session) for session in made.sessions]
    try:
        reporting = asyncio.create_task(made.report(made.sessions, seconds + 1.0))
        await asyncio.sleep(1.0)  # all tasks have begun
        redis = made.cluster.redis
        pids = [made.worker.pid, here.pid, there.pid, redis.process.pid]
        before, count = [cpu_seconds(pid) for pid in pids], _events(readers)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(seconds - 0.5)
        events, took = _events(readers) - count, loop.time() - began
        spent = [cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True)]
        await reporting
        one_more = await _listener_cost(made, seconds, spent[3] / max(1, events))
    finally:
        lost = [reader for reader in readers if reader.lost]
        for reader in readers:
            reader.close()
    if lost or not events:
        raise BenchError(f"{len(lost)} readers were lost, {events} events arrived")
    deaf = spent[1] / events
    wanted = (spent[0] + spent[2] + spent[3]) / events
    return {
        "log-rate": events / took,
        "log-cpu-per-event": sum(spent) / events * 1e6,
        "log-cpu-per-unwanted-event": (deaf + one_more) * 1e6,
        # So many replicas that hear of an event for nothing cost as much as the event itself.
        "log-channel-replicas": 1 + wanted / (deaf + one_more),
    }


def _events(readers: list[LogReader]) -> int:
    return sum(reader.events for reader in readers)


async def _listener_cost(made: Load, seconds: float, usual: float) -> float:
    """[s] What one more subscriber of the live channel costs Redis for each event; never less than nothing."""

    async def listen() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", made.cluster.redis.port)
        writer.write(b"SUBSCRIBE moorage:live\r\n")
        try:
            while await reader.read(1 << 20):
                pass
        finally:
            writer.close()

    listeners = [asyncio.create_task(listen()) for _ in range(LISTENERS)]
    try:
        pid = made.cluster.redis.process.pid
        before = cpu_seconds(pid)
        results = await made.report(made.sessions, seconds)
        spent = cpu_seconds(pid) - before
    finally:
        for task in listeners:
            task.cancel()
        await asyncio.gather(*listeners, return_exceptions=True)
    events = sum(int(result["count"]) for result in results)
    return max(0.0, (spent / max(1, events) - usual) / LISTENERS)


async def replay_cost(made: Load, readers: int = 100) -> dict[str, float]:
    """CPU time of a replica for each replayed event: connections that replay, less the same without."""
    session, port, pid = made.sessions[0], made.cluster.ports[0], made.cluster.processes[0].pid

    async def cost(after: str | None) -> tuple[float, int]:
        before, events = cpu_seconds(pid), 0
        for _ in range(readers):
            reader = await follow(port, made.token, session, after)
            if after is not None:
                async with asyncio.timeout(10):
                    await reader.settled
            events += reader.events
            reader.close()
        await asyncio.sleep(0.2)
        return cpu_seconds(pid) - before, events

    page = await made.request("GET", f"/v1/sessions/{session}/events?after=0-0&limit=1")
    oldest = page["gap"]["oldest"] if page.get("gap") else page["events"][0]["id"]
    await cost(oldest)
    bare, _ = await cost(None)
    full, events = await cost(oldest)
    if not events:
        raise BenchError("nothing was replayed")
    return {"log-replay-cpu-per-event": max(0.0, full - bare) / events * 1e6}


async def resumes(made: Load) -> dict[str, float]:
    """Redis commands for each of many readers that come back at once, each of which missed a few events."""
    redis, sessions = made.cluster.redis, made.sessions[:RESUMED_SESSIONS]
    places = {}
    for session in sessions:
        ids = [
            (
                await made.request(
                    "POST", f"/v1/sessions/{session}/events", {"type": "item", "data": {"t": 0}}
                )
            )["id"]
            for _ in range(4)
        ]
        places[session] = ids[0]
    idle = _commands(redis)
    await asyncio.sleep(1.0)
    idle_rate = _commands(redis) - idle
    loop = asyncio.get_running_loop()
    began, before = loop.time(), _commands(redis)

    async def resume(n: int) -> None:
        session = sessions[n % len(sessions)]
        port = made.cluster.ports[n % len(made.cluster.ports)]
        reader = await again_and_again(port, made.token, session, places[session])
        opened.append(reader)
        async with asyncio.timeout(20):
            await reader.settled

    opened: list[LogReader] = []
    try:
        await asyncio.gather(*(resume(n) for n in range(RESUMES)))
        took = loop.time() - began
        commands = _commands(redis) - before - idle_rate * took
    finally:
        for reader in opened:
            reader.close()
    if any(reader.events != 3 for reader in opened):
        raise BenchError("a resume did not bring the three missed events")
    return {"resume-redis-commands": commands / RESUMES, "resume-1000-ms": took * 1000}


async def again_and_again(port: int, token: str, session: str, after: str) -> LogReader:
    """A reader that tries as often as our clients do. Raises :class:`BenchError`."""
    for pause in PAUSES_S:
        try:
            return await follow(port, token, session, after)
        except BenchError:
            await asyncio.sleep(pause)
    return await follow(port, token, session, after)


def _commands(redis: Redis) -> int:
    for line in redis.command("INFO", "stats").decode(errors="replace").splitlines():
        if line.startswith("total_commands_processed:"):
            return int(line.split(":")[1])
    raise BenchError("Redis does not count its commands")
