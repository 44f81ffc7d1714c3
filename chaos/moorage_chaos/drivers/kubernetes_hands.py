"""What is done to pods through the node helpers, in the journal before it is done, and what is seen of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any, Literal

from moorage_chaos.drivers.base import DriverError, Evidence
from moorage_chaos.drivers.kubernetes_api import Api
from moorage_chaos.drivers.kubernetes_nodes import Nodes
from moorage_chaos.drivers.kubernetes_pods import PORT, Pod
from moorage_chaos.faults.base import Journal

REDIS_PORT = 6379
Side = Literal["client", "redis"]


class Hands:
    """Acts on pods of one system. ``record`` says in the journal which cluster that is."""

    def __init__(
        self, api: Api, nodes: Nodes, namespace: str, service: str, journal: Journal, record: dict[str, Any]
    ) -> None:
        self.api, self.nodes = api, nodes
        self.namespace, self.service = namespace, service
        self._journal, self._record = journal, record
        self._noted: dict[str, int] = {}

    # -- the journal -----------------------------------------------------------------------------------
    def note(self, key: str, **undo: Any) -> None:
        """Write what must be undone, once per key."""
        if key not in self._noted:
            self._noted[key] = self._journal.write({**self._record, **undo})

    def done(self, key: str) -> None:
        number = self._noted.pop(key, None)
        if number is not None:
            self._journal.done(number)

    def noted(self, prefix: str) -> list[str]:
        """Keys in force that begin with ``prefix``."""
        return [key for key in self._noted if key.startswith(prefix)]

    # -- signals ---------------------------------------------------------------------------------------
    async def signal(self, pod: Pod, number: signal.Signals) -> dict[str, Any]:
        """``{"t", "pid", "gone"?, "state"?}``, times on our clock. Raises DriverError."""
        if number == signal.SIGSTOP:
            self.note(f"pause:{pod.uid}", what="heal", pods=[pod.uid], node=pod.node)
        session = await self.nodes.session(pod.node)
        answer = await session.request("signal", pod=pod.uid, container=pod.container, number=int(number))
        for key in ("t", "gone"):
            if key in answer:
                answer[key] = session.here(answer[key])
        if session.uncertainty_ns:
            answer["clockUncertaintyNs"] = session.uncertainty_ns
        answer.pop("id", None)
        if number == signal.SIGCONT:
            self.done(f"pause:{pod.uid}")
        return answer

    async def watch(self, pod: Pod) -> None:
        """Learn from its node when the container's process ends. Raises DriverError."""
        session = await self.nodes.session(pod.node)
        await session.request("watch", pod=pod.uid, container=pod.container)

    # -- the network -----------------------------------------------------------------------------------
    async def link(self, pod: Pod, side: Side, do: str, **fields: Any) -> Evidence:
        """Raises DriverError."""
        key = f"link:{pod.uid}:{side}"
        if do not in ("heal", "cut"):
            self.note(key, what="heal", pods=[pod.uid], node=pod.node)
        session = await self.nodes.session(pod.node)
        port = PORT if side == "client" else REDIS_PORT
        answer = await session.request("link", pod=pod.uid, side=side, port=port, do=do, **fields)
        if do == "heal":
            self.done(key)
        proof = {key: value for key, value in answer.items() if key not in ("t", "id")}
        seen = await self.look(pod, side)
        return Evidence(session.here(answer["t"]), f"link-{do}", pod.link, {**proof, "after": seen, **fields})

    async def look(self, pod: Pod, side: Side = "client") -> dict[str, Any]:
        """What node and API server see of a pod now; what cannot be seen is None. Never raises for a node that is
        away: that, too, is something seen."""
        port = REDIS_PORT if "redis" in (side, pod.main) else PORT
        address = pod.ip if side == "client" else ""  # the node tracks connections by who answers
        try:
            session = await self.nodes.session(pod.node)
            seen = await session.request("look", pod=pod.uid, address=address, port=port, side=side)
        except DriverError as error:
            seen = {"connections": None, "conntrack": None, "error": str(error)}
        seen.pop("id", None)
        if pod.main == "server":
            seen["endpoints"] = await self.endpoints(pod)
        return seen

    async def endpoints(self, pod: Pod) -> dict[str, Any] | None:
        """``{"ready": addresses of the Service, "this": this pod is one of them}``; None: not known."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"
        try:
            slices = await self.api.items(path, f"kubernetes.io/service-name={self.service}")
        except DriverError:
            return None
        ready = ready_addresses(slices)
        return {"ready": len(ready), "this": pod.ip in ready}


def ready_addresses(slices: list[dict[str, Any]]) -> set[str]:
    """Addresses to which a Service sends new connections (absent ``ready`` counts as ready, as the API says)."""
    return {
        address
        for part in slices
        for endpoint in part.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint["addresses"]
    }


async def until(what: str, reached: Callable[[], Any], changed: asyncio.Event, bound_s: float) -> Any:
    """The first true answer of ``reached``, asked again at each change. Raises DriverError."""
    try:
        async with asyncio.timeout(bound_s):
            while True:
                changed.clear()
                if answer := reached():
                    return answer
                await changed.wait()
    except TimeoutError as error:
        raise DriverError(f"not within {bound_s:g} s: {what}") from error
