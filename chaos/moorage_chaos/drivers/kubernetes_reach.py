"""How clients of the harness reach the Service, one pod, and Redis, from where the harness runs.

==============  ================================================================================================
``pod``         addresses of pods are routed here (in the cluster, in a node's network): each pod directly, the
                Service by its NodePort or cluster address
``node-port``   nodes are reachable: the Service's NodePort; for single pods NodePort Services of the harness's own
``service``     a LoadBalancer, or what ``minikube service --url`` opens: the Service; single pods by port-forward
``forward``     port-forward for everything: each connection hangs on the pod it was opened to, so what a client
                sees when a pod dies is the forwarding, not the Service
==============  ================================================================================================
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal
from urllib.parse import urlsplit

from moorage_chaos.deploy.commands import minikube_service
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import Api, ApiError, Body
from moorage_chaos.drivers.kubernetes_forward import Forward
from moorage_chaos.drivers.kubernetes_pods import PORT, PodPlace, selector
from moorage_chaos.faults.base import Journal

Mode = Literal["pod", "node-port", "service", "forward"]
PROBE_S = 1.5
"""An address that takes longer to answer is not the one to use."""
LABEL = "moorage.dev/chaos-link"
"""Label of a pod that has a place, for the harness's own Services."""
LOUD = (
    "WARNING: only a port-forward leads to {what}: a forwarded connection dies with its pod and tells nothing about "
    "the Service; figures about reconnecting are those of the forwarding"
)


async def answers(host: str, port: int) -> bool:
    """A TCP connection comes about."""
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
            return True
    except (OSError, TimeoutError):
        return False


class Reach:
    """Ways into one system. ``say`` gets warnings for the person who looks."""

    def __init__(
        self, api: Api, namespace: str, name: str, journal: Journal, record: dict[str, Any], say: Any
    ) -> None:
        self.mode: Mode | None = None
        self.url = ""
        self._api, self._namespace, self._name = api, namespace, name
        self._journal, self._record, self._say = journal, record, say
        self._node_ip = ""
        self._ports: dict[str, int] = {}
        self._forwards: dict[str, Forward] = {}
        self._made: dict[str, int] = {}
        self._minikube: asyncio.subprocess.Process | None = None

    @property
    def _root(self) -> str:
        return f"/api/v1/namespaces/{self._namespace}"

    # -- choosing --------------------------------------------------------------------------------------
    async def open(self, places: list[PodPlace], wanted: Mode | None, minikube: str) -> None:
        """Find a way; ``wanted`` takes that one or fails. ``minikube``: name of the profile, empty if it is none.

        Raises DriverError.
        """
        service = await self._api.get(f"{self._root}/services/{self._name}")
        self.mode = wanted or await self._choose(service, places)
        port = service["spec"]["ports"][0]
        if self.mode in ("pod", "node-port"):
            self.url = await self._by_address(service, port)
        if self.mode == "service":
            self.url = await self._balanced(service, port) or (await self._minikube_url(minikube))
        if not self.url:
            self._say(LOUD.format(what="the Service"))
            self.url = await self._forward("service", self._some_pod(places))
        await asyncio.gather(*(self.place(place) for place in places))

    async def _choose(self, service: Body, places: list[PodPlace]) -> Mode:
        address = next((place.pod.ip for place in places if place.pod is not None and place.pod.ip), "")
        if address and await answers(address, PORT):
            return "pod"
        if await self._find_node(service["spec"]["ports"][0].get("nodePort", 0)):
            return "node-port"
        return "service" if service["spec"]["type"] in ("LoadBalancer", "NodePort") else "forward"

    async def _find_node(self, node_port: int) -> str:
        """An address of a node on which the NodePort answers; empty if none does."""
        if not node_port:
            return ""
        for node in await self._api.items("/api/v1/nodes"):
            for address in node["status"].get("addresses") or []:
                if address["type"] in ("InternalIP", "ExternalIP") and await answers(
                    address["address"], node_port
                ):
                    self._node_ip = str(address["address"])
                    return self._node_ip
        return ""

    async def _by_address(self, service: Body, port: Body) -> str:
        if port.get("nodePort") and await self._find_node(port["nodePort"]):
            return f"http://{self._node_ip}:{port['nodePort']}"
        cluster = service["spec"].get("clusterIP", "")
        if cluster not in ("", "None") and await answers(cluster, port["port"]):
            return f"http://{cluster}:{port['port']}"
        return ""

    async def _balanced(self, service: Body, port: Body) -> str:
        for entry in (service["status"].get("loadBalancer") or {}).get("ingress") or []:
            host = entry.get("ip") or entry.get("hostname")
            if host and await answers(host, port["port"]):
                return f"http://{host}:{port['port']}"
        return ""

    async def _minikube_url(self, profile: str) -> str:
        """``minikube service --url`` keeps a tunnel open for as long as it runs; empty if it opens none."""
        if not profile:
            return ""
        argv = minikube_service(profile, self._namespace, self._name)
        try:
            self._minikube = await asyncio.create_subprocess_exec(
                *argv, stdout=asyncio.subprocess.PIPE, start_new_session=True
            )
            assert self._minikube.stdout is not None
            async with asyncio.timeout(20):
                line = (await self._minikube.stdout.readline()).decode().strip()
        except (OSError, TimeoutError):
            return ""
        parts = urlsplit(line)
        if parts.hostname and parts.port and await answers(parts.hostname, parts.port):
            return line.rstrip("/")
        return ""

    @staticmethod
    def _some_pod(places: list[PodPlace]) -> PodPlace:
        found = next((place for place in places if place.pod is not None and place.pod.ready), None)
        if found is None:
            raise DriverError("no pod is ready, so there is nothing to connect to")
        return found

    # -- single pods -----------------------------------------------------------------------------------
    async def place(self, place: PodPlace) -> None:
        """Set the place's URL; called again for each new pod."""
        if place.pod is None:
            return
        if self.mode == "pod":
            place.url = f"http://{place.pod.ip}:{PORT}"
        elif self.mode == "node-port":
            await self._api.patch(
                f"{self._root}/pods/{place.pod.name}", {"metadata": {"labels": {LABEL: place.link}}}
            )
            place.url = f"http://{self._node_ip}:{await self._service(place.link)}"
        else:
            place.url = await self._forward(place.link, place)

    async def _service(self, link: str) -> int:
        """NodePort of the harness's own Service for one place; made when first asked for."""
        if link not in self._ports:
            name = f"{self._name}-chaos-{link}"
            wanted = {"app.kubernetes.io/instance": self._name, LABEL: link}
            self._ports[link] = await self._make(name, wanted, PORT)
        return self._ports[link]

    async def _make(self, name: str, wanted: dict[str, str], port: int) -> int:
        path = f"{self._root}/services/{name}"
        self._made[path] = self._journal.write({**self._record, "what": "delete", "path": path})
        spec = {
            "type": "NodePort",
            "publishNotReadyAddresses": True,
            "selector": wanted,
            "ports": [{"name": "tcp", "port": port, "targetPort": port, "protocol": "TCP"}],
        }
        body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        made = await self._api.apply(path, body)
        return int(made["spec"]["ports"][0]["nodePort"])

    async def _forward(self, key: str, place: PodPlace, port: int = PORT) -> str:
        if key not in self._forwards:
            self._forwards[key] = Forward(self._api, self._namespace, port)
            await self._forwards[key].open()
            if key != "service":
                self._say(LOUD.format(what=key))
        assert place.pod is not None
        self._forwards[key].pod = place.pod.name
        return f"http://127.0.0.1:{self._forwards[key].port}"

    async def redis(self, pod: str, address: str) -> tuple[str, int]:
        """Host and port by which Redis itself is reached, for looking at it."""
        if self.mode == "pod":
            return address, 6379
        if self.mode == "node-port":
            name, labels = (
                f"{self._name}-chaos-redis",
                dict(part.split("=") for part in selector(self._name, "redis").split(",")),
            )
            if "redis" not in self._ports:
                self._ports["redis"] = await self._make(name, labels, 6379)
            return self._node_ip, self._ports["redis"]
        if "redis" not in self._forwards:
            self._forwards["redis"] = Forward(self._api, self._namespace, 6379)
            await self._forwards["redis"].open()
        self._forwards["redis"].pod = pod
        return "127.0.0.1", self._forwards["redis"].port

    async def close(self) -> None:
        for forward in self._forwards.values():
            await forward.close()
        self._forwards.clear()
        if self._minikube is not None and self._minikube.returncode is None:
            self._minikube.terminate()
            await self._minikube.wait()
        for path, number in self._made.items():
            try:
                await self._api.delete(path)
            except ApiError:
                continue  # it stays in the journal, for `recover`
            self._journal.done(number)
        self._made.clear()
        self._ports.clear()
