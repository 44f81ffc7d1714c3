"""One operator process: its parts, in which order they start, and that it ends when one of them does."""

from __future__ import annotations

import asyncio
import functools
import logging
import random
import signal
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import kopf

from moorage_operator.api import Api
from moorage_operator.context import Context
from moorage_operator.errors import ApiError, OperatorError
from moorage_operator.handlers import registry_for, settings_for
from moorage_operator.health import Health
from moorage_operator.lease import Lease
from moorage_operator.metrics import Metrics
from moorage_operator.pods import Pods
from moorage_operator.queue import Queue
from moorage_operator.reconcile import reconcile
from moorage_operator.resource import KIND
from moorage_operator.store import Store
from moorage_operator.watching import Watching

log = logging.getLogger(__name__)

OLDEST_KUBERNETES = (1, 30)
"""CRD ratcheting, `quantity()` in CEL and preStop sleep are on by default from here."""
CRD_SECONDS = 20.0
"""[s] `kubectl apply -f manifests/` makes CRD and operator in one go; the kind is served a little later."""
LEASE_NAME = "moorage-operator"


class NotFit(OperatorError):
    """The cluster lacks what the operator needs; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    namespaces: tuple[str, ...] = ()
    """Watched namespaces; empty: all."""
    operator_namespace: str = "moorage-system"
    holder: str = "moorage-operator"
    lease: bool = True
    host: str = "0.0.0.0"
    port: int = 8080
    resync_seconds: float = 600.0


async def run(options: Options) -> int:
    """Until SIGTERM or SIGINT (0), or until a part ends that must not (1)."""
    metrics = Metrics()
    health = Health(metrics)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    api = await Api.connect(metrics.request)
    pods = Pods()
    try:
        await check(api)
        await health.start(options.host, options.port)
        lease = Lease(api, options.operator_namespace, LEASE_NAME, options.holder) if options.lease else None
        if lease is not None and await _either(lease.acquire(), stop):
            return 0
        metrics.leader.set(1)
        context = Context(api, Store(), pods, metrics, options.operator_namespace, options.holder)
        code = await _lead(options, context, health, lease, stop)
        if lease is not None and code == 0:
            await lease.release()
        return code
    finally:
        await health.stop()
        await pods.close()
        await api.close()


async def check(api: Api) -> None:
    """Raises :class:`NotFit` when the cluster is too old or the CRD is missing (and does not come either)."""
    version = await api.version()
    if version < OLDEST_KUBERNETES:
        wanted, found = (".".join(map(str, v)) for v in (OLDEST_KUBERNETES, version))
        raise NotFit(f"Kubernetes {wanted} or newer is needed; this is {found}")
    deadline = asyncio.get_running_loop().time() + CRD_SECONDS
    while not await api.knows(KIND):
        if asyncio.get_running_loop().time() > deadline:
            raise NotFit(
                "the cluster does not know RealtimeServer; run: kubectl apply -f manifests/00-crd.yaml"
            )
        await asyncio.sleep(1)


async def _lead(
    options: Options, context: Context, health: Health, lease: Lease | None, stop: asyncio.Event
) -> int:
    queue = Queue(functools.partial(reconcile, context), context.metrics)
    watching = Watching(context.api, context.store, queue, context.metrics, options.namespaces)
    health.oldest = lambda: queue.oldest
    if await _either(_primed(watching), stop):
        return 0
    parts: dict[str, Coroutine[Any, Any, Any]] = {
        "queue": queue.run(),
        "resync": _resync(watching, options.resync_seconds),
        "watches": kopf.operator(
            registry=registry_for(watching, optional=not options.namespaces),
            settings=settings_for(namespaced=bool(options.namespaces)),
            standalone=True,
            # Else kopf asks for the user's name, and a pod's uid has none.
            identity=options.holder,
            clusterwide=not options.namespaces,
            namespaces=options.namespaces,
            stop_flag=stop,
        ),
        "stop": stop.wait(),
    }
    if lease is not None:
        parts["lease"] = lease.hold()
    health.started = True
    log.info("in charge of %s", ", ".join(options.namespaces) or "all namespaces")
    tasks = {asyncio.create_task(part, name=name) for name, part in parts.items()}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    # kopf takes the signals over while it runs, and returns from them without an error.
    signalled = any(t.get_name() == "watches" and not t.cancelled() and t.exception() is None for t in done)
    stopping = stop.is_set() or signalled
    stop.set()
    for task in pending:
        if task.get_name() != "watches":
            task.cancel()
    await asyncio.wait(pending, timeout=5)
    for task in done:
        if not stopping:
            error = None if task.cancelled() else task.exception()
            log.error("%s ended%s; leaving", task.get_name(), f": {error!r}" if error else "")
    return 0 if stopping else 1


async def _primed(watching: Watching) -> None:
    """Fill the store, however long the API server takes to let us."""
    delay = 0.5
    while True:
        try:
            return await watching.prime()
        except ApiError as error:
            delay = min(delay * 2, 30.0)
            log.warning("first lists: %s; again in %.0f s", error, delay)
            await asyncio.sleep(max(delay * random.uniform(0.5, 1), error.retry_after))


async def _resync(watching: Watching, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds * random.uniform(0.8, 1.2))
        try:
            await watching.resync()
        except ApiError as error:
            log.warning("resync: %s", error)


async def _either(work: Coroutine[Any, Any, None], stop: asyncio.Event) -> bool:
    """Do ``work`` unless stopped before its end; True: stopped. What ``work`` raises is raised."""
    task, stopped = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return not task.done()
    finally:
        task.cancel()
        stopped.cancel()
