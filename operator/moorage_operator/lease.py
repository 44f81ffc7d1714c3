"""Who is in charge: a Lease, held by one process, so that a standby may wait beside it."""

from __future__ import annotations

import asyncio
import datetime
import logging
from typing import Any

from moorage_operator.api import Api
from moorage_operator.errors import ApiError, Conflict

log = logging.getLogger(__name__)

DURATION_SECONDS = 15
"""[s] A holder that has not renewed for so long is gone (client-go's default)."""
RENEW_SECONDS = 5.0
"""[s] Between renewals, and between looks of a standby."""
GIVE_UP_SECONDS = 10.0
"""[s] Without a renewal the holder ends itself, well before another may take over."""


class Lease:
    """``holder`` must differ between processes, and be the same after a restart in place (the pod's name)."""

    def __init__(self, api: Api, namespace: str, name: str, holder: str) -> None:
        self._api, self._namespace, self._name, self._holder = api, namespace, name, holder
        self._seen: tuple[Any, float] = (None, 0.0)

    async def acquire(self) -> None:
        """Until it is ours. A silent API server is waited out."""
        waiting = False
        while True:
            try:
                if await self._try():
                    return
            except ApiError as error:
                log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            if not waiting:
                log.info("standby: another process holds lease %s/%s", self._namespace, self._name)
                waiting = True
            await asyncio.sleep(RENEW_SECONDS)

    async def hold(self) -> None:
        """Renew until it is lost, then return."""
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while loop.time() - renewed < GIVE_UP_SECONDS:
            await asyncio.sleep(RENEW_SECONDS if loop.time() - renewed < RENEW_SECONDS else 1.0)
            try:
                async with asyncio.timeout(GIVE_UP_SECONDS - (loop.time() - renewed)):
                    if not await self._try():
                        return
                renewed = loop.time()
            except (ApiError, TimeoutError) as error:
                log.warning("lease %s/%s: not renewed: %s", self._namespace, self._name, error)

    async def release(self) -> None:
        """Let a standby take over at once."""
        try:
            lease = await self._api.find("Lease", self._namespace, self._name)
            if lease is not None and lease["spec"].get("holderIdentity") == self._holder:
                lease["spec"]["holderIdentity"] = ""
                await self._api.replace({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", **lease})
        except ApiError as error:
            log.warning("lease %s/%s: not released: %s", self._namespace, self._name, error)

    async def _try(self) -> bool:
        """Take or renew; False: somebody else holds it."""
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = await self._api.find("Lease", self._namespace, self._name)
        try:
            if lease is None:
                await self._api.create(self._body({}, stamp, stamp, 0))
                return True
            spec = lease["spec"]
            holder = spec.get("holderIdentity") or ""
            if holder not in ("", self._holder) and not self._expired(spec):
                return False
            changes = spec.get("leaseTransitions", 0) + (holder != self._holder)
            since = spec.get("acquireTime") or stamp if holder == self._holder else stamp
            await self._api.replace(self._body(lease["metadata"], stamp, since, changes))
        except Conflict:
            return False
        return True

    def _expired(self, spec: dict[str, Any]) -> bool:
        """By our own clock since it last changed: clocks of two machines are never compared."""
        now = asyncio.get_running_loop().time()
        state = (spec.get("holderIdentity"), spec.get("renewTime"))
        if state != self._seen[0]:
            self._seen = (state, now)
        return now - self._seen[1] > float(spec.get("leaseDurationSeconds") or DURATION_SECONDS)

    def _body(self, metadata: dict[str, Any], stamp: str, since: str, transitions: int) -> dict[str, Any]:
        kept = {k: metadata[k] for k in ("resourceVersion", "uid") if k in metadata}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace, **kept},
            "spec": {
                "holderIdentity": self._holder,
                "leaseDurationSeconds": DURATION_SECONDS,
                "renewTime": stamp,
                "acquireTime": since,
                "leaseTransitions": transitions,
            },
        }
