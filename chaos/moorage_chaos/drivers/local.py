"""Replicas as processes of this machine, an embedded Redis, and the front between them and the clients."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from moorage_chaos.drivers import namespaces, procfs
from moorage_chaos.drivers.base import Can, DriverError, Evidence, Notify, Place, Replica, Setup
from moorage_chaos.drivers.keeper import Child, Keeper
from moorage_chaos.drivers.local_replica import LocalPlace, LocalReplica, LocalWorker
from moorage_chaos.drivers.ports import Ports
from moorage_chaos.drivers.probe import get, sums
from moorage_chaos.drivers.redis import ExternalRedis, LocalRedis, until_stopped
from moorage_chaos.drivers.settled import settled
from moorage_chaos.faults.base import Journal
from moorage_chaos.faults.journal import TEMP_PREFIX
from moorage_chaos.front_control import FrontControl

ENTRY = "moorage.cli:main"
MUTANT_ENTRY = "moorage_chaos.mutants:run"
WORKER_ENTRY = "moorage_chaos.worker:run"
PRELOAD = ("moorage.cli", "moorage.serve", "uvloop", "uvicorn", "orjson")
START_BOUND_S = 20.0
"""From launch to ready, with Redis there: warm it takes less than 0.5 s on an idle core."""


@dataclass(frozen=True)
class LocalConfig:
    """What a local system is made of."""

    folder: Path
    """Logs go here."""
    journal: Journal
    name: str = "main"
    """Prefix of log files; tells the systems of one run apart."""
    mutant: str | None = None
    redis_url: str | None = None
    """An external Redis; None: an embedded one."""
    entry: str = ENTRY
    """``module:function`` that is called with ``sys.argv = ["moorage", "serve"]``."""
    worker_entry: str = WORKER_ENTRY
    """The same for workers; called with the mutant's name or None, and ``sys.argv = ["moorage", "worker"]``."""
    preload: Sequence[str] = PRELOAD
    env: Mapping[str, str] = field(default_factory=dict)
    """More environment for every process; a row's setup wins over it."""


class LocalDriver:
    """Meets :class:`moorage_chaos.drivers.base.Driver`."""

    kind: Literal["local"] = "local"
    pace = 1.0

    def __init__(self, config: LocalConfig) -> None:
        self.config = config
        abilities: set[Can] = {"kill", "pause", "terminate", "client-links"}
        if config.redis_url is None:
            abilities |= {"redis-links", "redis-kill", "redis-pause", "redis-keep"}
        self.can: frozenset[Can] = frozenset(abilities)
        self.setup = Setup()
        self.url = ""
        self.secret_key = secrets.token_urlsafe(36)
        self.replicas: list[LocalReplica] = []
        self.workers: list[LocalWorker] = []
        self.listeners: list[Notify] = []
        self.links = FrontControl()
        self.redis: LocalRedis | ExternalRedis = ExternalRedis(config.redis_url or "")
        self._state: LocalRedis | None = None
        self._service_port = 0
        self._by_id: dict[str, LocalReplica] = {}
        self._keeper: Keeper | None = None
        self._ports = Ports()
        self._namespaces: namespaces.Namespaces | None = None
        self._tag = secrets.token_hex(8)
        self._temp: Path | None = None
        self._records: list[int] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    # -- building --------------------------------------------------------------------------------------
    async def start(self, setup: Setup) -> None:
        """Also rebuilds a system that runs: the warm parent is kept."""
        await self._tear_down()
        self.setup = setup
        self.config.folder.mkdir(parents=True, exist_ok=True)
        if self._keeper is None:
            await self._start_keeper()
        await self._start_namespaces(setup)
        self.links = FrontControl(self._on_ready, self._namespaces)
        await self.links.start(self._log("front"))
        self._service_port = await self.links.service()
        self.url = f"http://127.0.0.1:{self._service_port}"
        await self._start_redis(setup)
        self.replicas = [LocalReplica(f"replica-{number}") for number in range(1, setup.replicas + 1)]
        self.workers = [LocalWorker(f"worker-{number}") for number in range(1, setup.workers + 1)]
        for place in self._places:
            place.redis_url = self.redis.url
            wires = self._namespaces
            if wires is not None and place.link in wires.clients:
                place.host = wires.clients[place.link].inside
                place.redis_url = f"redis://{wires.redis[place.link].host}:{self._redis_port()}"
            elif setup.redis_links or setup.namespaces:
                port = await self.links.link(f"{place.link}:redis", ("127.0.0.1", self._redis_port()))
                place.redis_url = f"redis://127.0.0.1:{port}"
        await asyncio.gather(*(self.launch(place) for place in self._places))
        await self._settled(START_BOUND_S)

    async def _start_namespaces(self, setup: Setup) -> None:
        """Where the kernel lets us; else the front's links do the same with proxies."""
        if not setup.namespaces or not namespaces.available():
            return
        self._namespaces = namespaces.Namespaces(self.config.journal)
        for number in range(1, setup.replicas + 1):
            await self._namespaces.add(f"replica-{number}")

    def _redis_port(self) -> int:
        if not isinstance(self.redis, LocalRedis):
            raise DriverError("an external Redis has no links that could be cut")
        return self.redis.port

    @property
    def _places(self) -> list[LocalPlace]:
        return [*self.replicas, *self.workers]

    async def _start_keeper(self) -> None:
        journal = self.config.journal
        self._records.append(journal.write({"do": "end", "tag": self._tag}))
        self._temp = Path(tempfile.mkdtemp(prefix=TEMP_PREFIX))
        self._records.append(journal.write({"do": "rmtree", "path": str(self._temp)}))
        self._keeper = Keeper(self.config.preload)
        await self._keeper.start(self._log("warm"), self._environment({}))

    async def _start_redis(self, setup: Setup) -> None:
        if self.config.redis_url is not None:
            if setup.state_redis:
                raise DriverError("with an external Redis there is no second one")
            self.redis = ExternalRedis(self.config.redis_url)
            return
        self.redis = await self._new_redis("redis", setup.redis_keep)
        if setup.state_redis:
            self._state = await self._new_redis("state-redis", False)

    async def _new_redis(self, name: str, keep: bool) -> LocalRedis:
        assert self._keeper is not None and self._temp is not None  # noqa: PT018 -- set together
        environment = self._environment({})
        redis = LocalRedis(self._keeper, self._ports.take(), self._temp / name, self._log(name), environment)
        redis.keep = keep
        redis.hosts += [wire.host for wire in self._namespaces.redis.values()] if self._namespaces else []
        await redis.start(keep=False)
        return redis

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        """The caller's own settings of a server must not leak into ours."""
        ours = (
            "PORT",
            "METRICS_PORT",
            "METRICS_ENABLED",
            "REDIS_URL",
            "STATE_URL",
            "SECRET_KEY",
            "REDIS_CA_FILE",
        )
        env = {k: v for k, v in os.environ.items() if not k.startswith("MOORAGE_") and k not in ours}
        return {**env, procfs.TAG: self._tag, **more}

    def _log(self, name: str) -> Path:
        return self.config.folder / f"{self.config.name}-{name}.log"

    async def _tear_down(self) -> None:
        """End replicas, Redis and front; the warm parent stays."""
        self.url = ""
        stores = [redis for redis in (self.redis, self._state) if isinstance(redis, LocalRedis) and redis.up]
        children = [place.child for place in self._places if place.child is not None]
        children += [redis.process for redis in stores]
        for place in self._places:
            place.asked = True
        for child in children:
            if child.exit_code is None:
                try:
                    await child.deliver(signal.SIGKILL)
                    await child.wait(5.0)
                except (DriverError, TimeoutError):
                    continue  # the warm parent is gone, and what it started with it
        await self.links.stop()
        if self._namespaces is not None:
            await self._namespaces.remove()
            self._namespaces = None
        self.replicas, self.workers, self._state = [], [], None
        self._by_id.clear()

    async def stop(self) -> None:
        await self._tear_down()
        if self._keeper is not None:
            await self._keeper.stop()
            self._keeper = None
        if self._temp is not None:
            shutil.rmtree(self._temp, ignore_errors=True)
            self._temp = None
        for number in self._records:
            self.config.journal.done(number)
        self._records.clear()

    # -- looking ---------------------------------------------------------------------------------------
    def replica(self, replica_id: str) -> LocalReplica:
        return self._by_id[replica_id]

    async def replica_of(self, sid: str) -> LocalReplica:
        """By the line each replica prints on connect. Raises KeyError."""
        for replica in self.replicas:
            for generation in range(replica.generation, 0, -1):
                log = self._log(f"{replica.link}.{generation}")
                if log.exists() and sid in log.read_text(errors="replace"):
                    return replica
        raise KeyError(sid)

    async def metrics(self, replica: Replica) -> dict[str, float]:
        try:
            status, body = await get(replica.metrics_url, timeout_s=3.0)
        except (OSError, TimeoutError, ValueError) as error:
            raise DriverError(f"no metrics of {replica.id}: {error!r}") from error
        if status != 200:
            raise DriverError(f"/metrics of {replica.id} answers {status}")
        return sums(body.decode(errors="replace"))

    async def told(self, place: Place, prefix: str) -> list[str]:
        lines = []
        for generation in range(1, place.generation + 1):
            log = self._log(f"{place.link}.{generation}")
            # What follows the last line feed was cut short by a kill.
            text = await asyncio.to_thread(log.read_text, errors="replace") if log.exists() else ""
            lines += [line[len(prefix) :] for line in text.split("\n")[:-1] if line.startswith(prefix)]
        return lines

    async def door(self, name: str) -> str:
        return f"http://127.0.0.1:{await self.links.link(name, ('127.0.0.1', self._service_port))}"

    def _place(self, place: Place) -> LocalPlace:
        return next(own for own in self._places if own.link == place.link)

    def _notify(self, op: str, t_ns: int, place: LocalPlace, **value: Any) -> None:
        for listener in list(self.listeners):
            listener(op, t_ns, {"replica": place.id, "link": place.link, **value})
        self._in_background(self._tell())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _on_ready(self, link: str, ready: bool, t_ns: int) -> None:
        replica = next((one for one in self.replicas if one.link == link), None)
        if replica is None or replica.ready == ready:
            return
        replica.ready = ready
        if ready:
            self._notify("alive", t_ns, replica)
        elif replica.state == "not-ready":
            self._notify("draining", t_ns, replica)

    def _on_exit(self, place: LocalPlace, child: Child) -> None:
        if place.child is child:
            place.ready = place.paused = False
            self._notify("death", child.gone_ns, place, code=child.exit_code, asked=place.asked)

    # -- changing --------------------------------------------------------------------------------------
    async def launch(self, place: Place, *, replica_id: str | None = None, wait: bool = True) -> None:
        own = self._place(place)
        if own.running:
            raise DriverError(f"{own.id} runs")
        own.begin(replica_id or f"{own.link}-{secrets.token_hex(3)}", self._ports.take())
        if isinstance(own, LocalReplica):
            own.port = self._ports.take()
            self._by_id[own.id] = own
        own.child = await self._start(own)
        own.child.on_exit.append(lambda ended: self._on_exit(own, ended))
        if isinstance(own, LocalReplica):
            own.front_port = await self.links.link(own.link, (own.host, own.port), member=True)
        else:
            self._in_background(self._watch(own, own.child))
        if wait:
            await self.wait_ready(own, START_BOUND_S)

    async def _start(self, place: LocalPlace) -> Child:
        assert self._keeper is not None
        env = {**self.config.env, **self.setup.env, **place.environment(self.secret_key)}
        if self._state is not None:
            env["STATE_URL"] = self._state.url
        log, mutant = self._log(f"{place.link}.{place.generation}"), self.config.mutant
        if isinstance(place, LocalWorker):
            argv, entry = ["worker"], self.config.worker_entry
            args: list[Any] = [mutant]
        else:
            argv = ["serve"]
            entry, args = (MUTANT_ENTRY, [mutant, argv]) if mutant else (self.config.entry, [])
        netns = self._namespaces.path(place.link) if self._namespaces is not None else ""
        env, full = self._environment(env), ["moorage", *argv]
        return await self._keeper.start_entry(entry, args, full, env, log, netns)

    async def _watch(self, worker: LocalPlace, child: Child) -> None:
        """Until it serves its metrics, or is dead."""
        while child.exit_code is None:
            try:
                status, _ = await get(worker.metrics_url, timeout_s=1.0)
                if status == 200 and worker.child is child:
                    worker.ready = True
                    self._notify("alive", time.monotonic_ns(), worker)
                    return
            except (OSError, TimeoutError, ValueError):
                pass
            await asyncio.sleep(0.05)

    async def wait_ready(self, place: Place | None = None, timeout_s: float = 15.0) -> None:
        wanted = [self._place(place)] if place is not None else list(self.replicas)
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                while not all(own.ready for own in wanted):
                    dead = next((own for own in wanted if not own.running), None)
                    if dead is not None:
                        raise DriverError(f"{dead.id} is dead (exit code {dead.exit_code})")
                    await self._changed.wait()
        except TimeoutError as error:
            late = ", ".join(f"{own.id} ({own.state})" for own in wanted if not own.ready)
            raise DriverError(f"not ready after {timeout_s} s: {late}") from error

    async def kill(self, place: Place) -> Evidence:
        return await self._end(self._place(place), signal.SIGKILL, 5.0)

    async def terminate(self, place: Place, timeout_s: float = 30.0) -> Evidence:
        return await self._end(self._place(place), signal.SIGTERM, timeout_s)

    async def _end(self, place: LocalPlace, number: signal.Signals, timeout_s: float) -> Evidence:
        child = place.process
        place.asked = True
        name = place.id
        t = await child.deliver(number)
        try:
            code = await child.wait(timeout_s)
        except TimeoutError as error:
            raise DriverError(f"{name} did not end within {timeout_s} s of {number.name}") from error
        took = round((child.gone_ns - t) / 1e6, 3)
        proof = {"exitCode": code, "pid": child.pid, "goneNs": child.gone_ns, "drainMs": took}
        return Evidence(t, "kill" if number == signal.SIGKILL else "terminate", name, proof)

    async def pause(self, place: Place) -> Evidence:
        own = self._place(place)
        t = await own.process.deliver(signal.SIGSTOP)
        own.paused = True
        return Evidence(t, "pause", own.id, {"state": await until_stopped(own.process), "pid": own.pid})

    async def resume(self, place: Place) -> Evidence:
        own = self._place(place)
        t = await own.process.deliver(signal.SIGCONT)
        own.paused = False
        return Evidence(t, "resume", own.id, {"pid": own.pid})

    # -- the start state -------------------------------------------------------------------------------
    async def restore(self, timeout_s: float = 60.0) -> None:
        end = time.monotonic() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                for name, link in (await self.links.status()).items():
                    if link["mode"] != "open":
                        await self.links.heal(name)
                await self.redis.resume()
                if not self.redis.up:
                    await self.redis.start(keep=False)
                for place in self._places:
                    if place.paused:
                        await self.resume(place)
                await asyncio.gather(
                    *(self.launch(place, wait=False) for place in self._places if not place.running)
                )
                for place in self._places:
                    await self.wait_ready(place, max(0.1, end - time.monotonic()))
                await self._settled(max(0.1, end - time.monotonic()))
        except TimeoutError as error:
            raise DriverError(f"the start state was not back within {timeout_s} s") from error

    async def _settled(self, timeout_s: float) -> None:
        """No replica is degraded (all reach Redis) and all know as many registrations. Raises DriverError."""
        try:
            async with asyncio.timeout(timeout_s):
                while not await settled(self.replicas, self.metrics):  # noqa: ASYNC110 -- other processes have no event for it
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise DriverError(f"replicas did not agree within {timeout_s:.0f} s") from error
