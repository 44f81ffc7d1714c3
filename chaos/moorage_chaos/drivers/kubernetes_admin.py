"""What is done to nodes and to the operator. A node that is cut or cordoned is in the journal first."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import Any

from moorage_chaos.deploy.providers import Provider, run
from moorage_chaos.drivers.base import DriverError, Evidence
from moorage_chaos.drivers.kubernetes_api import Body
from moorage_chaos.drivers.kubernetes_ends import ending
from moorage_chaos.drivers.kubernetes_hands import Hands
from moorage_chaos.drivers.kubernetes_pods import Pod

OPERATOR_NAMESPACE = "moorage-system"
OPERATOR = "app.kubernetes.io/name=moorage-operator"
NOT_READY_BOUND_S = 90.0
"""From a cut until the node controller gives up: 40 s by default, 16 s on the test cluster."""
READY_BOUND_S = 60.0
OPERATOR_BOUND_S = 60.0


def is_ready(node: Body) -> bool:
    """Its Ready condition, as the node controller has it."""
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions") or []}
    return conditions.get("Ready") == "True"


class Admin:
    """For one cluster."""

    def __init__(self, hands: Hands, provider: Provider) -> None:
        self._hands, self._provider = hands, provider

    async def _node(self, name: str) -> Body:
        return await self._hands.api.get(f"/api/v1/nodes/{name}")

    async def _unschedulable(self, name: str, value: bool | None) -> None:
        await self._hands.api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": value}})

    async def cordon(self, name: str) -> Evidence:
        self._hands.note(f"node:{name}", what="node", name=name, argv=[])
        await self._unschedulable(name, True)
        return Evidence(time.monotonic_ns(), "cordon", name, {"unschedulable": True})

    async def uncordon(self, name: str) -> None:
        await self._unschedulable(name, None)
        self._hands.done(f"node:{name}")

    async def cut_node(self, name: str) -> Evidence:
        """Raises DriverError where nobody knows how; returns at once, the cluster needs a while to notice."""
        argv = self._provider.cut(name)
        self._hands.note(f"node:{name}", what="node", name=name, argv=self._provider.mend(name))
        t = time.monotonic_ns()
        await self._command(argv)
        return Evidence(t, "cut-node", name, {"command": argv[-2:]})

    async def mend_node(self, name: str) -> None:
        """Returns when the node is Ready."""
        await self._command(self._provider.mend(name))
        await self.until_node(name, ready=True, bound_s=READY_BOUND_S)
        self._hands.done(f"node:{name}")

    async def until_node(self, name: str, *, ready: bool, bound_s: float = NOT_READY_BOUND_S) -> None:
        """Raises DriverError."""
        end = time.monotonic() + bound_s
        while is_ready(await self._node(name)) != ready:
            if time.monotonic() > end:
                raise DriverError(f"node {name} is not {'Ready' if ready else 'lost'} after {bound_s:g} s")
            await asyncio.sleep(0.3)

    async def _command(self, argv: list[str]) -> None:
        done = await asyncio.to_thread(run, argv)
        if done.returncode:
            raise DriverError(f"{' '.join(argv)}: {done.stderr.strip()}")

    async def kill_operator(self) -> Evidence:
        """SIGKILL of the one that holds the lease, its pod deleted. Raises DriverError if there is none."""
        pods = await self._operators()
        if not pods:
            raise DriverError(f"no operator runs in namespace {OPERATOR_NAMESPACE}")
        holder = await self._holder()
        pod = next((pod for pod in pods if pod.name == holder), pods[0])
        path = f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods"
        async with ending(self._hands.api, path, OPERATOR, pod, OPERATOR_BOUND_S) as end:
            answer = await self._hands.signal(pod, signal.SIGKILL)
            await self._hands.api.delete(f"{path}/{pod.name}", grace_s=1, uid=pod.uid)
            code, reason = await end
        proof: dict[str, Any] = {
            "exitCode": code,
            "reason": reason,
            "pid": answer["pid"],
            "goneNs": answer["gone"],
        }
        return Evidence(answer["t"], "kill-operator", pod.name, {**proof, "pod": pod.name, "node": pod.node})

    async def operator_runs(self) -> bool:
        return bool(await self._operators())

    async def _operators(self) -> list[Pod]:
        bodies = await self._hands.api.items(f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods", OPERATOR)
        pods = [Pod.of(body, "operator") for body in bodies]
        return [pod for pod in pods if pod.running and not pod.going]

    async def _holder(self) -> str:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{OPERATOR_NAMESPACE}/leases/moorage-operator"
        lease = await self._hands.api.find(path)
        return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")
