"""Replicas as pods of a RealtimeServer: found or deployed, set up for each row, hurt from their nodes, put back.

Differences to the local driver that a row may notice: a pod that was killed comes back by itself, in another pod of
another name; a Service notices an unready pod after the probe's period, not within 0.1 s; an address of the Service
is chosen at random, not in turn.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from moorage_chaos.deploy.providers import Provider
from moorage_chaos.drivers import kubernetes_reach as reach
from moorage_chaos.drivers.base import Can, CannotBuild, DriverError, Evidence, Notify, Place, Replica, Setup
from moorage_chaos.drivers.kubernetes_admin import Admin
from moorage_chaos.drivers.kubernetes_api import Api, Where
from moorage_chaos.drivers.kubernetes_deeds import Deeds
from moorage_chaos.drivers.kubernetes_doors import Doors
from moorage_chaos.drivers.kubernetes_hands import Hands, until
from moorage_chaos.drivers.kubernetes_links import PodLinks
from moorage_chaos.drivers.kubernetes_logs import Logs
from moorage_chaos.drivers.kubernetes_nodes import Nodes
from moorage_chaos.drivers.kubernetes_object import CHANGED, Object, wanted_spec
from moorage_chaos.drivers.kubernetes_pods import METRICS_PORT, PORT, Fleet, Pod, PodPlace, selector
from moorage_chaos.drivers.kubernetes_redis import PodRedis
from moorage_chaos.drivers.kubernetes_state import StateRedis
from moorage_chaos.drivers.probe import sums
from moorage_chaos.drivers.settled import REGISTRATIONS
from moorage_chaos.faults.base import Journal

START_BOUND_S = 60.0
"""From a pod's creation to a ready replica, on a machine that is busy with others."""
CAN: frozenset[Can] = frozenset({"kill", "pause", "terminate", "client-links", "redis-links", "cluster"})
WITH_REDIS: frozenset[Can] = frozenset({"redis-kill", "redis-pause", "redis-keep"})


@dataclass(frozen=True)
class KubernetesConfig:
    """Which system, and how it is reached."""

    folder: Path
    """Logs go here."""
    journal: Journal
    where: Where
    namespace: str
    lane: str = "main"
    name: str = ""
    """Of the RealtimeServer; empty: the only one in the namespace."""
    connect: reach.Mode | None = None
    """None: the first way that works."""
    provider: Provider = field(default_factory=lambda: Provider("other"))
    """What kind of cluster it is."""
    gentle: bool = False
    """Nothing of the object is changed and nobody is hurt (``--safe-only``)."""
    image: str = ""
    """Image for the servers instead of the object's own: the one under record, for workers and mutants."""
    mutant: str | None = None
    say: Callable[[str], None] = print
    """For warnings."""


class KubernetesDriver:
    """Meets :class:`moorage_chaos.drivers.base.Driver`."""

    kind: Literal["kubernetes"] = "kubernetes"
    pace = 4.0
    """A pod is ready about 5 s after its predecessor was killed; a process of the local driver after 0.3 s."""

    def __init__(self, config: KubernetesConfig) -> None:
        self.config = config
        self.setup = Setup()
        self.can: frozenset[Can] = CAN | WITH_REDIS if not config.gentle else frozenset()
        self.url = ""
        self.secret_key = ""
        self.listeners: list[Notify] = []
        self.servers = Fleet("server", "replica", self._notify)
        self.fleet_of_workers = Fleet("worker", "worker", self._notify)
        self._api: Api | None = None
        self._record = {
            "do": "kubernetes",
            **config.where.as_json(),
            "namespace": config.namespace,
        }
        self._noted: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.original: dict[str, Any] = {}
        """The spec of the object as it was found."""
        self._watched: set[str] = set()

    # -- parts -----------------------------------------------------------------------------------------
    @property
    def replicas(self) -> list[PodPlace]:
        return self.servers.places

    @property
    def workers(self) -> list[PodPlace]:
        return self.fleet_of_workers.places

    @property
    def api(self) -> Api:
        """Raises DriverError before :meth:`start`."""
        if self._api is None:
            raise DriverError("the driver was not started")
        return self._api

    @property
    def namespace(self) -> str:
        return self.config.namespace

    def replica(self, replica_id: str) -> PodPlace:
        return self.servers.place_of(replica_id)

    async def replica_of(self, sid: str) -> PodPlace:
        """By the line each replica prints on connect. Raises KeyError."""
        for pod in self.servers.pods.values():
            path = self.logs.files.get(pod.container)
            if path is not None and sid in await asyncio.to_thread(path.read_text, errors="replace"):
                return self.servers.place_of(pod.id)
        raise KeyError(sid)

    def _fleet(self, place: Place) -> Fleet:
        return self.fleet_of_workers if place.link.startswith("worker-") else self.servers

    def _own(self, place: Place) -> PodPlace:
        return next(own for own in self._fleet(place).places if own.link == place.link)

    def _pod(self, place: Place) -> Pod:
        pod = self._own(place).pod
        if pod is None or not pod.running:
            raise DriverError(f"{place.link} does not run")
        return pod

    def _pod_of(self, link: str) -> Pod:
        place = next((place for place in [*self.replicas, *self.workers] if place.link == link), None)
        if place is None:
            raise DriverError(f"there is no link {link}")
        return self._pod(place)

    def _pod_path(self, pod: Pod) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{pod.name}"

    # -- building --------------------------------------------------------------------------------------
    async def start(self, setup: Setup) -> None:
        if self._api is None:
            await self._connect()
        self.setup = setup
        fleets = (self.servers, self.fleet_of_workers)
        for fleet in fleets:
            fleet.ask(True)
        await self._shape(setup)
        body = await self.object.settled()
        count = body["spec"]["replicas"] if self.config.gentle else setup.replicas
        for fleet, size in zip(fleets, (count, setup.workers), strict=True):
            calm = functools.partial(fleet.calm, size)
            await until("the pods of before are gone", calm, fleet.changed, START_BOUND_S)
            fleet.ask(False)
            fleet.resize(size)
        await self.wait_ready(timeout_s=START_BOUND_S)
        await self.reach.close()
        profile = self.config.provider.cluster if self.config.provider.kind == "minikube" else ""
        await self.reach.open(self.replicas, self.config.connect, profile)
        self.url = self.reach.url
        await self.doors.start(self.url)
        await self.redis.find(body["spec"]["redis"]["mode"])
        await self._settled(START_BOUND_S)

    async def _connect(self) -> None:
        """Everything that lives as long as the driver."""
        config = self.config
        config.folder.mkdir(parents=True, exist_ok=True)
        api = self._api = await Api.connect(config.where)
        self.object = await Object.find(api, config.namespace, config.name)
        self.nodes = Nodes(api, self._on_exit)
        self.hands = Hands(api, self.nodes, config.namespace, self.object.name, config.journal, self._record)
        self.deeds = Deeds(self.hands, self._on_exit)
        self.admin = Admin(self.hands, config.provider)
        self.state = StateRedis(self.hands, self.object.name)
        self.reach = reach.Reach(
            api, config.namespace, self.object.name, config.journal, self._record, config.say
        )
        self.redis = PodRedis(self.hands, self.reach, self.object.name)
        self.doors = Doors(config.folder / f"{config.lane}-doors.log")
        self.links = PodLinks(self.hands, self._pod_of, self.doors)
        self.logs = Logs(api, config.namespace, config.folder, self._introduced, self._stalled)
        self.original = (await self.object.body())["spec"]
        if not config.gentle:
            for node in {pod.node for pod in await self._present()}:
                await self.nodes.session(node)  # no helper: better told now than in mid row
        for fleet in (self.servers, self.fleet_of_workers):
            self._run(self._watch(fleet))
        self._run(self._follow_endpoints())

    async def _present(self) -> list[Pod]:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        bodies = await self.api.items(path, selector(self.object.name))
        return [pod for body in bodies if (pod := Pod.of(body, "server")).node]

    async def _shape(self, setup: Setup) -> None:
        """Make the object what the row's setup wants, unless nothing may be changed."""
        if self.config.gentle:
            if setup.env or setup.workers or setup.state_redis:
                raise CannotBuild("with --safe-only nothing is set up: this row wants other settings")
            return
        if not self._noted:
            record = {**self._record, "what": "spec", "path": self.object.path, "spec": self._before()}
            self._noted.append(self.config.journal.write(record))
        env = {"MOORAGE_CHAOS_MUTANT": self.config.mutant} if self.config.mutant else {}
        image = self._image(setup)
        state = await self.state.have(setup.state_redis, self.original["redis"]["image"])
        await self.object.patch(wanted_spec(self.original, setup, image=image, env=env, state=state))

    def _before(self) -> dict[str, Any]:
        """The fields that setups change, as they were found (null: not set)."""
        redis = self.original["redis"]
        redis = {**redis, "stateUrlSecretKeyRef": redis.get("stateUrlSecretKeyRef")}
        return {**{key: self.original.get(key) for key in CHANGED}, "redis": redis}

    def _image(self, setup: Setup) -> str:
        if not (setup.workers or self.config.mutant):
            return ""
        if not self.config.image:
            raise CannotBuild("workers and mutants need the image under record: --deploy builds it")
        return self.config.image

    async def stop(self) -> None:
        if self._api is None:
            return
        try:
            if not self.config.gentle:
                await self._heal()
                await self.object.patch(self._before())
                await self.state.have(False, "")
            for number in self._noted:
                self.config.journal.done(number)
            self._noted.clear()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.logs.close()
            await self.doors.close()
            await self.reach.close()
            await self.nodes.close()
            await self.api.close()
            self._api = None

    # -- looking ---------------------------------------------------------------------------------------
    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _notify(self, op: str, t_ns: int, value: dict[str, Any]) -> None:
        for listener in list(self.listeners):
            listener(op, t_ns, value)

    def _on_exit(self, container: str, t_ns: int) -> None:
        for fleet in (self.servers, self.fleet_of_workers):
            fleet.exited(container, t_ns)

    def _stalled(self, pod: Pod, t_ns: int) -> None:
        self._notify("stalled", t_ns, {"replica": pod.id, "link": pod.link, "pod": pod.name})

    def _introduced(self, pod: Pod, container: str, replica_id: str) -> None:
        for fleet in (self.servers, self.fleet_of_workers):
            if pod.uid in fleet.pods:
                fleet.introduced(pod, container, replica_id)

    async def _watch(self, fleet: Fleet) -> None:
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        async for kind, body in self.api.watch(path, selector(self.object.name, fleet.component)):
            fleet.heard(kind, body)
            for pod in fleet.pods.values():
                if pod.running and not pod.going and pod.container not in self._watched:
                    self._watched.add(pod.container)
                    stem = f"{self.config.lane}-{pod.link or pod.name}"
                    self.logs.follow(pod, f"{stem}.{len(self._watched)}")
                    if fleet.component == "worker":
                        fleet.introduced(pod, pod.container, pod.name)
                    if not self.config.gentle:
                        self._run(self._watch_end(pod))

    async def _watch_end(self, pod: Pod) -> None:
        try:
            await self.hands.watch(pod)
        except DriverError:
            return  # without it a death is told when kubelet tells it

    async def _follow_endpoints(self) -> None:
        """Notes ``endpoints`` in histories: to which pods the Service sends new connections, at each change."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"
        known: dict[str, dict[str, Any]] = {}
        async for kind, body in self.api.watch(path, f"kubernetes.io/service-name={self.object.name}"):
            if kind == "LISTED":
                known = {item["metadata"]["name"]: item for item in body["items"]}
            elif kind == "DELETED":
                known.pop(body["metadata"]["name"], None)
            else:
                known[body["metadata"]["name"]] = body
            rows = [
                [(endpoint.get("targetRef") or {}).get("name"), endpoint.get("conditions")]
                for part in known.values()
                for endpoint in part.get("endpoints") or []
            ]
            self._notify("endpoints", time.monotonic_ns(), {"pods": rows})

    async def _proxied(self, pod: Pod, port: int, path: str) -> str:
        """GET through the API server, so that nothing but it need be reachable. Raises DriverError."""
        return await self.api.text(
            "GET", f"{self._pod_path(pod)[: -len(pod.name)]}{pod.name}:{port}/proxy{path}"
        )

    async def metrics(self, replica: Replica) -> dict[str, float]:
        return sums(await self._proxied(self._pod(replica), METRICS_PORT, "/metrics"))

    async def told(self, place: Place, prefix: str) -> list[str]:
        lines: list[str] = []
        for pod in self._fleet(place).pods.values():
            if pod.link != place.link:
                continue
            for container in dict.fromkeys([*pod.ended, pod.container]):
                path = self.logs.files.get(container)
                if path is not None:
                    if container in pod.ended:
                        await self.logs.finished(container)
                    text = await asyncio.to_thread(path.read_text, errors="replace")
                    lines += [
                        line[len(prefix) :] for line in text.split("\n")[:-1] if line.startswith(prefix)
                    ]
        return lines

    async def door(self, name: str) -> str:
        return await self.doors.open(name)

    # -- changing --------------------------------------------------------------------------------------
    async def kill(self, place: Place) -> Evidence:
        return await self.deeds.kill(self._fleet(place), self._pod(place), place.id)

    async def terminate(self, place: Place, timeout_s: float = 30.0) -> Evidence:
        return await self.deeds.terminate(self._fleet(place), self._pod(place), place.id, timeout_s)

    async def evict(self, place: Place, timeout_s: float = 60.0) -> Evidence | None:
        """Through the API, as a drain does; None: a disruption budget said no."""
        return await self.deeds.evict(self._fleet(place), self._pod(place), place.id, timeout_s)

    async def pause(self, place: Place) -> Evidence:
        return await self.deeds.pause(self._pod(place), place.id)

    async def resume(self, place: Place) -> Evidence:
        return await self.deeds.resume(self._pod(place), place.id)

    async def launch(self, place: Place, *, replica_id: str | None = None, wait: bool = True) -> None:
        """The ReplicaSet makes the pod; this waits for it."""
        if replica_id is not None:
            raise DriverError("a pod's id cannot be chosen")
        own, fleet = self._own(place), self._fleet(place)
        await until(f"a pod for {place.link}", lambda: own.state != "dead", fleet.changed, START_BOUND_S)
        if wait:
            await self.wait_ready(own, START_BOUND_S)

    async def wait_ready(self, place: Place | None = None, timeout_s: float = 15.0) -> None:
        """Bounded by :data:`START_BOUND_S` at least: pods take longer than processes."""
        wanted = [self._own(place)] if place is not None else list(self.replicas)
        fleet = self._fleet(place) if place is not None else self.servers
        bound = max(timeout_s, START_BOUND_S)

        def late() -> list[str]:
            return [f"{own.link} ({own.state})" for own in wanted if own.state != "ready"]

        try:
            await until("ready", lambda: not late(), fleet.changed, bound)
        except DriverError as error:
            raise DriverError(f"not ready after {bound:g} s: {', '.join(late())}") from error
        if fleet is self.servers:
            await asyncio.gather(*(self._served(own, bound) for own in wanted))

    async def _served(self, place: PodPlace, bound_s: float) -> None:
        """The Service knows it, and its own way leads to it."""
        end = time.monotonic() + bound_s
        while place.pod is not None:
            found = await self.hands.endpoints(place.pod)
            if found is not None and found["this"]:
                break
            if time.monotonic() > end:
                raise DriverError(f"the Service does not know {place.pod.name} after {bound_s:g} s")
            await asyncio.sleep(0.1)
        if self.reach.mode is not None:
            await self.reach.place(place)

    # -- the start state -------------------------------------------------------------------------------
    async def _heal(self) -> None:
        await self.links.heal_all()
        await self.redis.resume()
        for place in [*self.replicas, *self.workers]:
            if place.state == "paused":
                await self.resume(place)
        if not self.redis.up:
            await self.redis.start(keep=False)

    async def restore(self, timeout_s: float = 60.0) -> None:
        end = time.monotonic() + timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                if not self.config.gentle:
                    await self._heal()
                    await self._shape(self.setup)
                await self.object.settled(max(1.0, end - time.monotonic()))
                await self.wait_ready(timeout_s=max(1.0, end - time.monotonic()))
                await self._settled(max(1.0, end - time.monotonic()))
        except TimeoutError as error:
            raise DriverError(f"the start state was not back within {timeout_s} s") from error

    async def _settled(self, timeout_s: float) -> None:
        """No replica is degraded and all know as many registrations. Raises DriverError."""
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._is_settled():  # noqa: ASYNC110 -- other processes have no event for it
                    await asyncio.sleep(0.2)
        except TimeoutError as error:
            raise DriverError(f"replicas did not agree within {timeout_s:.0f} s") from error

    async def _is_settled(self) -> bool:
        known = set()
        for place in self.replicas:
            try:
                pod = self._pod(place)
                if orjson.loads(await self._proxied(pod, PORT, "/ready")).get("degraded"):
                    return False
                known.add((await self.metrics(place)).get(REGISTRATIONS))
            except (DriverError, ValueError):
                return False
        return len(known) <= 1
