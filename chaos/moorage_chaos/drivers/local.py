"""Replicas as processes of this machine, with an embedded Redis and the front between them and the
clients."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from moorage_chaos.drivers import procfs
from moorage_chaos.drivers.base import Can, DriverError, Evidence, Notify, Replica, Setup
from moorage_chaos.drivers.keeper import Child, Keeper
from moorage_chaos.drivers.local_replica import LocalReplica
from moorage_chaos.drivers.ports import Ports
from moorage_chaos.drivers.probe import get, sums
from moorage_chaos.drivers.redis import ExternalRedis, LocalRedis, until_stopped
from moorage_chaos.faults.base import Journal
from moorage_chaos.faults.journal import TEMP_PREFIX
from moorage_chaos.front_control import FrontControl

REGISTRATIONS = "rpc_registrations"
"""Gauge of /metrics: registrations a replica knows of; equal on all replicas once they agree."""
ENTRY = "moorage.cli:main"
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
    preload: Sequence[str] = PRELOAD
    env: Mapping[str, str] = field(default_factory=dict)
    """More environment for every process; a row's setup wins over it."""


class LocalDriver:
    """Meets :class:`moorage_chaos.drivers.base.Driver`."""

    kind: Literal["local"] = "local"

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
        self.listeners: list[Notify] = []
        self.links = FrontControl()
        self.redis: LocalRedis | ExternalRedis = ExternalRedis(config.redis_url or "")
        self._by_id: dict[str, LocalReplica] = {}
        self._keeper: Keeper | None = None
        self._ports = Ports()
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
        assert self._keeper is not None
        self.links = FrontControl(self._on_ready)
        await self.links.start(self._log("front"))
        self.url = f"http://127.0.0.1:{await self.links.service()}"
        await self._start_redis(setup)
        for number in range(1, setup.replicas + 1):
            replica = LocalReplica(f"replica-{number}")
            self.replicas.append(replica)
            if setup.redis_links:
                if not isinstance(self.redis, LocalRedis):
                    raise DriverError("an external Redis has no links that could be cut")
                port = await self.links.link(f"{replica.link}:redis", ("127.0.0.1", self.redis.port))
                replica.redis_url = f"redis://127.0.0.1:{port}"
            else:
                replica.redis_url = self.redis.url
        await asyncio.gather(*(self.launch(replica) for replica in self.replicas))
        await self._settled(START_BOUND_S)

    async def _start_keeper(self) -> None:
        journal = self.config.journal
        self._records.append(journal.write({"do": "end", "tag": self._tag}))
        self._temp = Path(tempfile.mkdtemp(prefix=TEMP_PREFIX))
        self._records.append(journal.write({"do": "rmtree", "path": str(self._temp)}))
        self._keeper = Keeper(self.config.preload)
        await self._keeper.start(self._log("warm"), self._environment({}))

    async def _start_redis(self, setup: Setup) -> None:
        if self.config.redis_url is not None:
            self.redis = ExternalRedis(self.config.redis_url)
            return
        assert self._keeper is not None and self._temp is not None  # noqa: PT018 -- set together
        redis = LocalRedis(
            self._keeper,
            self._ports.take(),
            self._temp / "redis",
            self._log("redis"),
            self._environment({}),
        )
        redis.keep = setup.redis_keep
        self.redis = redis
        await redis.start(keep=False)

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
        children = [replica.child for replica in self.replicas if replica.child is not None]
        if isinstance(self.redis, LocalRedis) and self.redis.up:
            children.append(self.redis.process)
        for replica in self.replicas:
            replica.asked = True
        for child in children:
            if child.exit_code is None:
                try:
                    await child.deliver(signal.SIGKILL)
                    await child.wait(5.0)
                except (DriverError, TimeoutError):
                    continue  # the warm parent is gone, and what it started with it
        await self.links.stop()
        self.replicas = []
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

    def _place(self, replica: Replica) -> LocalReplica:
        return next(place for place in self.replicas if place.link == replica.link)

    def _notify(self, op: str, t_ns: int, replica: LocalReplica, **value: Any) -> None:
        for listener in list(self.listeners):
            listener(op, t_ns, {"replica": replica.id, "link": replica.link, **value})
        task = asyncio.get_running_loop().create_task(self._tell())
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

    def _on_exit(self, replica: LocalReplica, child: Child) -> None:
        if replica.child is child:
            replica.ready = replica.paused = False
            self._notify("death", child.gone_ns, replica, code=child.exit_code, asked=replica.asked)

    # -- changing --------------------------------------------------------------------------------------
    async def launch(self, replica: Replica, *, replica_id: str | None = None, wait: bool = True) -> None:
        place = self._place(replica)
        if place.running:
            raise DriverError(f"{place.id} runs")
        assert self._keeper is not None
        place.begin(
            replica_id or f"{place.link}-{secrets.token_hex(3)}", self._ports.take(), self._ports.take()
        )
        self._by_id[place.id] = place
        env = {
            **self.config.env,
            **self.setup.env,
            **place.environment(self.secret_key),
        }
        log = self._log(f"{place.link}.{place.generation}")
        child = await self._start(["serve"], env, log)
        place.child = child
        child.on_exit.append(lambda ended: self._on_exit(place, ended))
        place.front_port = await self.links.link(place.link, ("127.0.0.1", place.port), member=True)
        if wait:
            await self.wait_ready(place, START_BOUND_S)

    async def _start(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> Child:
        assert self._keeper is not None
        full = ["moorage", *argv]
        mutant = self.config.mutant
        entry = "moorage_chaos.mutants:run" if mutant else self.config.entry
        args = [mutant, list(argv)] if mutant else []
        return await self._keeper.start_entry(entry, args, full, self._environment(env), log)

    async def spawn(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        base = {
            "REDIS_URL": self.replicas[0].redis_url,
            "SECRET_KEY": self.secret_key,
            "METRICS_PORT": str(self._ports.take()),
        }
        full = {**self.config.env, **self.setup.env, **base, **(env or {})}
        return await self._start(argv, full, self._log(name))

    async def wait_ready(self, replica: Replica | None = None, timeout_s: float = 15.0) -> None:
        wanted = [self._place(replica)] if replica is not None else self.replicas
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                while not all(place.ready for place in wanted):
                    dead = next((place for place in wanted if not place.running), None)
                    if dead is not None:
                        raise DriverError(f"{dead.id} is dead (exit code {dead.exit_code})")
                    await self._changed.wait()
        except TimeoutError as error:
            late = ", ".join(f"{place.id} ({place.state})" for place in wanted if not place.ready)
            raise DriverError(f"not ready after {timeout_s} s: {late}") from error

    async def kill(self, replica: Replica) -> Evidence:
        place = self._place(replica)
        return await self._end(place, signal.SIGKILL, 5.0)

    async def terminate(self, replica: Replica, timeout_s: float = 30.0) -> Evidence:
        place = self._place(replica)
        return await self._end(place, signal.SIGTERM, timeout_s)

    async def _end(self, place: LocalReplica, number: signal.Signals, timeout_s: float) -> Evidence:
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

    async def pause(self, replica: Replica) -> Evidence:
        place = self._place(replica)
        t = await place.process.deliver(signal.SIGSTOP)
        place.paused = True
        return Evidence(t, "pause", place.id, {"state": await until_stopped(place.process), "pid": place.pid})

    async def resume(self, replica: Replica) -> Evidence:
        place = self._place(replica)
        t = await place.process.deliver(signal.SIGCONT)
        place.paused = False
        return Evidence(t, "resume", place.id, {"pid": place.pid})

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
                for place in self.replicas:
                    if place.paused:
                        await self.resume(place)
                await asyncio.gather(
                    *(self.launch(place, wait=False) for place in self.replicas if not place.running)
                )
                await self.wait_ready(timeout_s=max(0.1, end - time.monotonic()))
                await self._settled(max(0.1, end - time.monotonic()))
        except TimeoutError as error:
            raise DriverError(f"the start state was not back within {timeout_s} s") from error

    async def _settled(self, timeout_s: float) -> None:
        """No replica is degraded (all reach Redis) and all know as many registrations. Raises DriverError."""
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._is_settled():  # noqa: ASYNC110 -- other processes have no event for it
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise DriverError(f"replicas did not agree within {timeout_s:.0f} s") from error

    async def _is_settled(self) -> bool:
        known = set()
        for place in self.replicas:
            try:
                _, body = await get(place.direct_url + "/ready", timeout_s=3.0)
                if orjson.loads(body or b"{}").get("degraded"):
                    return False
            except (OSError, TimeoutError, ValueError):
                return False
            known.add((await self.metrics(place)).get(REGISTRATIONS))
        return len(known) <= 1
