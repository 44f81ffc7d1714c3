"""The operator's managed Redis: killed, kept away, brought back with or without its data, frozen.

StatefulSet and operator would bring a killed Redis back within a second. To keep it away the object is paused (the
operator then writes nothing) and the StatefulSet scaled to 0; both are in the journal first.
"""

from __future__ import annotations

import asyncio
import base64
import signal
from typing import Any

from moorage_chaos.drivers.base import DriverError, Evidence
from moorage_chaos.drivers.kubernetes_api import RTS, Api, Body
from moorage_chaos.drivers.kubernetes_ends import ending
from moorage_chaos.drivers.kubernetes_hands import Hands
from moorage_chaos.drivers.kubernetes_pods import Pod, selector
from moorage_chaos.drivers.kubernetes_reach import Reach
from moorage_chaos.drivers.redis import ping

START_BOUND_S = 60.0
"""From scaling up to PONG: a new claim may have to be provisioned."""
END_BOUND_S = 30.0
CONNECT = """
import socket, sys, time
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    try:
        socket.create_connection((sys.argv[1], 6379), 1).close()
        sys.exit(0)
    except OSError:
        time.sleep(0.02)
sys.exit(1)
"""


class PodRedis:
    """Meets :class:`moorage_chaos.drivers.base.RedisControl`."""

    def __init__(self, hands: Hands, reach: Reach, name: str) -> None:
        self.up = False
        self.url = ""
        self.mode = ""
        """``spec.redis.mode`` of the object."""
        self._hands, self._reach, self._name = hands, reach, name
        self._paused: Pod | None = None
        self._address = ("", 0)

    @property
    def _api(self) -> Api:
        return self._hands.api

    @property
    def _set(self) -> str:
        return f"/apis/apps/v1/namespaces/{self._hands.namespace}/statefulsets/{self._name}-redis"

    @property
    def _object(self) -> str:
        return f"{RTS}/namespaces/{self._hands.namespace}/realtimeservers/{self._name}"

    async def _body(self) -> Body | None:
        return await self._api.find(f"/api/v1/namespaces/{self._hands.namespace}/pods/{self._name}-redis-0")

    async def _pod(self) -> Pod:
        """Raises DriverError if there is none."""
        body = await self._body()
        if body is None:
            raise DriverError("there is no Redis pod: spec.redis.mode is not Managed, or it is scaled to 0")
        pod = Pod.of(body, "redis")
        pod.link = "redis"
        return pod

    async def find(self, mode: str) -> None:
        """Learn where it is; ``up`` tells whether it answers. Raises DriverError."""
        self.mode = mode
        if mode != "Managed":
            self.up, self.url = True, ""
            return
        pod = await self._pod()
        secret = await self._api.find(
            f"/api/v1/namespaces/{self._hands.namespace}/secrets/{self._name}-redis-password"
        )
        data = (secret or {}).get("data") or {}
        password = base64.b64decode(data.get("password", "")).decode()
        self._address = await self._reach.redis(pod.name, pod.ip)
        host, port = self._address
        self.url = f"redis://:{password}@{host}:{port}" if password else f"redis://{host}:{port}"
        self.up = pod.running and pod.ready

    def _managed(self) -> None:
        if self.mode != "Managed":
            raise DriverError(f"a Redis of mode {self.mode} is not touched")

    async def kill(self) -> Evidence:
        self._managed()
        pod = await self._pod()
        before = await self._hands.look(pod)
        self._hands.note("redis", what="redis", name=self._name)
        await self._api.patch(self._object, {"spec": {"paused": True}})
        path = f"/api/v1/namespaces/{self._hands.namespace}/pods"
        async with ending(self._api, path, selector(self._name, "redis"), pod, END_BOUND_S) as end:
            answer = await self._hands.signal(pod, signal.SIGKILL)
            self.up = False
            await self._api.patch(self._set, {"spec": {"replicas": 0}})
            code, reason = await end
        refused = not await ping(*self._address, 1.0)
        proof = {"exitCode": code, "reason": reason, "pid": answer["pid"], "goneNs": answer["gone"]}
        proof |= {"refused": refused, "node": pod.node, "pod": pod.name, "before": before}
        return Evidence(answer["t"], "redis-kill", "redis", proof)

    async def start(self, *, keep: bool) -> None:
        if self.up or self.mode != "Managed":
            return
        if not keep:
            claim = (
                f"/api/v1/namespaces/{self._hands.namespace}/persistentvolumeclaims/data-{self._name}-redis-0"
            )
            await self._api.delete(claim)
            await self._until(lambda body: body is None, claim, "the claim of Redis is gone")
        await self._api.patch(self._set, {"spec": {"replicas": 1}})
        pod_path = f"/api/v1/namespaces/{self._hands.namespace}/pods/{self._name}-redis-0"
        await self._until(
            lambda body: body is not None and Pod.of(body, "redis").ready, pod_path, "Redis is ready"
        )
        await self.find(self.mode)
        end = asyncio.get_running_loop().time() + END_BOUND_S
        while not await self._pong():
            if asyncio.get_running_loop().time() > end:
                raise DriverError("Redis does not answer PING")
            await asyncio.sleep(0.05)
        await self._by_name()
        self.up = True
        await self._api.patch(self._object, {"spec": {"paused": False}})
        self._hands.done("redis")

    async def _by_name(self) -> None:
        """Wait until its name, asked for in a server's pod, leads to it: the cluster's DNS goes on saying for some
        seconds that there is no such name, and until then nobody can be back. Raises DriverError."""
        label = f"app.kubernetes.io/instance={self._name},app.kubernetes.io/component=server"
        pods = await self._api.items(f"/api/v1/namespaces/{self._hands.namespace}/pods", label)
        running = [pod for body in pods if (pod := Pod.of(body, "server")).running and not pod.going]
        if not running:
            raise DriverError("no server runs, so nobody can tell whether Redis is found by its name")
        host = f"{self._name}-redis.{self._hands.namespace}.svc"
        argv = ("python3", "-c", CONNECT, host, str(START_BOUND_S))
        try:
            found = await self._api.run(
                self._hands.namespace, running[0].name, "server", argv, START_BOUND_S + 5
            )
        except TimeoutError:
            found = False
        if not found:
            raise DriverError(f"{host} does not lead to Redis after {START_BOUND_S:g} s")

    async def _pong(self) -> bool:
        """With a password it answers NOAUTH, which is an answer, too."""
        host, port = self._address
        try:
            async with asyncio.timeout(1.0):
                reader, writer = await asyncio.open_connection(host, port)
                try:
                    writer.write(b"PING\r\n")
                    line = await reader.readline()
                    return line.startswith((b"+PONG", b"-NOAUTH"))
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return False

    async def _until(self, reached: Any, path: str, what: str) -> None:
        try:
            async with asyncio.timeout(START_BOUND_S):
                while not reached(await self._api.find(path)):  # noqa: ASYNC110 -- kubelet has no event for it
                    await asyncio.sleep(0.1)
        except TimeoutError as error:
            raise DriverError(f"not within {START_BOUND_S:g} s: {what}") from error

    async def pause(self) -> Evidence:
        self._managed()
        pod = await self._pod()
        answer = await self._hands.signal(pod, signal.SIGSTOP)
        self._paused = pod
        proof = {"state": answer["state"], "pid": answer["pid"], "node": pod.node}
        proof["after"] = await self._hands.look(pod)
        return Evidence(answer["t"], "redis-pause", "redis", proof)

    async def resume(self) -> None:
        pod, self._paused = self._paused, None
        if pod is not None:
            await self._hands.signal(pod, signal.SIGCONT)
