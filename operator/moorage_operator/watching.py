"""From watch events to the store and the queue: who wants a pass because of this? No kopf in here."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict

from moorage_operator.api import Api
from moorage_operator.desired.inputs import references
from moorage_operator.errors import ApiError, Forbidden, NotFound, SpecError
from moorage_operator.metrics import Metrics
from moorage_operator.queue import Key, Queue
from moorage_operator.resource import KIND, parse
from moorage_operator.store import REFERENCED, Body, Store, instance_of, owner_of

log = logging.getLogger(__name__)

LABELLED = "app.kubernetes.io/name=moorage"
"""Children and pods; Secrets and ConfigMaps are watched without it, for users' own may be referenced."""
CHILD_KINDS = (
    "Deployment",
    "StatefulSet",
    "Service",
    "ServiceAccount",
    "PodDisruptionBudget",
    "NetworkPolicy",
    "HorizontalPodAutoscaler",
    "Pod",
)
OPTIONAL_KINDS = ("ServiceMonitor",)
"""Served only where their CRD is installed."""
GAP_SECONDS = 2.0
"""[s] After the first sign that a watch began anew: all kinds are listed, for what was deleted in the gap is
never told (a list has no deletions), and a kind of which nothing is left gives no sign at all."""
LATE_GAP_SECONDS = 30.0
"""[s] After that list there is another one: after an outage kopf begins its watches anew at up to 21 s from each other
(its default ``networking.error_backoffs``), and what is deleted in between is told by none that comes late."""


def selector_of(kind: str) -> str:
    return "" if kind in (*REFERENCED, KIND) else LABELLED


class Watching:
    """Feeds the store; wakes the owners."""

    def __init__(
        self, api: Api, store: Store, queue: Queue, metrics: Metrics, namespaces: tuple[str, ...] = ()
    ) -> None:
        self._api, self._store, self._queue, self._metrics = api, store, queue, metrics
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._owners: dict[str, Key] = {}
        self._references: dict[tuple[str, str, str], set[Key]] = defaultdict(set)
        self._named: dict[Key, set[tuple[str, str, str]]] = {}
        self._closing: asyncio.Task[None] | None = None
        self._late: asyncio.Task[None] | None = None

    # -- events ----------------------------------------------------------------------------------------

    def told(self, kind: str, event: str | None, body: Body) -> None:
        """One watch event; ``event`` None means "exists" (a watch began, or began anew)."""
        body = {**body, "kind": kind}
        if event == "DELETED":
            self._store.drop(body)
        elif not self._store.put(body):
            return
        self._wake(kind, body, gone=event == "DELETED")
        if event is None and self._closing is None:
            self._metrics.relists.labels(kind).inc()
            self._closing = asyncio.get_running_loop().create_task(self._close_gap())

    def _wake(self, kind: str, body: Body, *, gone: bool = False) -> None:
        namespace, name = body["metadata"].get("namespace", ""), body["metadata"]["name"]
        if kind == KIND:
            self._remember(body, gone=gone)
            self._queue.add((namespace, name))
            return
        if kind in REFERENCED:
            for key in self._references.get((kind, namespace, name), ()):
                self._queue.add(key)
        owner = self._owners.get(owner_of(body) or "")
        if owner is None and self._store.get(KIND, namespace, instance_of(body)) is not None:
            owner = (namespace, instance_of(body))
        if owner is not None:
            self._queue.add(owner)

    def _remember(self, body: Body, *, gone: bool) -> None:
        key = (body["metadata"].get("namespace", ""), body["metadata"]["name"])
        for name in self._named.pop(key, set()):
            self._references[name].discard(key)
            if not self._references[name]:
                del self._references[name]
        if gone:
            self._owners.pop(body["metadata"]["uid"], None)
            return
        self._owners[body["metadata"]["uid"]] = key
        try:
            found = references(parse(body))
        except SpecError:
            return
        self._named[key] = {(reference.kind, key[0], reference.name) for reference in found}
        for name in self._named[key]:
            self._references[name].add(key)

    # -- lists -----------------------------------------------------------------------------------------

    async def prime(self) -> None:
        """Fill the store before the first pass: one that sees no children would begin from nothing."""
        for kind in (*CHILD_KINDS, *OPTIONAL_KINDS, *REFERENCED, KIND):
            await self.relist(kind)

    async def relist(self, kind: str) -> None:
        """Bring the store in line with a list of the whole kind; wakes the owners of what differs."""
        for namespace in self._namespaces:
            try:
                bodies = await self._api.list(kind, namespace, selector_of(kind))
            except (NotFound, Forbidden) as error:
                if kind in OPTIONAL_KINDS:
                    continue
                raise error
            gone_or_new = self._store.replace(kind, bodies, namespace)
            there = {body["metadata"]["uid"] for body in bodies}
            for body in gone_or_new:
                self._wake(kind, body, gone=body["metadata"]["uid"] not in there)

    async def _close_gap(self) -> None:
        await asyncio.sleep(GAP_SECONDS)
        self._closing = None
        await self._list_all()
        if self._late is None:
            self._late = asyncio.get_running_loop().create_task(self._close_late_gap())

    async def _close_late_gap(self) -> None:
        await asyncio.sleep(LATE_GAP_SECONDS)
        self._late = None
        await self._list_all()

    async def _list_all(self) -> None:
        try:
            await self.prime()
        except ApiError as error:
            log.warning("listing after a gap: %s; the next resync will do it", error)

    async def resync(self) -> None:
        """Everything anew, and a pass for every object. Raises :class:`ApiError` when a list fails."""
        await self.prime()
        for body in self._store.all(KIND):
            self._queue.add((body["metadata"]["namespace"], body["metadata"]["name"]))
