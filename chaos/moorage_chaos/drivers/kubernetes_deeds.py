"""What is done to a pod as a process: killed, ended in good order, evicted, stopped; with the proof that it was."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from moorage_chaos.drivers.base import DriverError, Evidence
from moorage_chaos.drivers.kubernetes_api import ApiError
from moorage_chaos.drivers.kubernetes_hands import Hands, until
from moorage_chaos.drivers.kubernetes_pods import Fleet, Pod

EXIT_CODE_BOUND_S = 20.0
"""From the end of a process to its exit code in the API: kubelet looks at its containers each second, and tells when
the pod is gone."""
REFUSED = 429
"""Status of an eviction that a disruption budget does not allow."""


class Deeds:
    """``exited(container, t_ns)`` is told what the node saw."""

    def __init__(self, hands: Hands, exited: Callable[[str, int], None]) -> None:
        self._hands, self._exited = hands, exited

    def _path(self, pod: Pod) -> str:
        return f"/api/v1/namespaces/{self._hands.namespace}/pods/{pod.name}"

    async def kill(self, fleet: Fleet, pod: Pod, name: str) -> Evidence:
        """SIGKILL from the node, then the pod is deleted, so that kubelet's back-off does not add up over kills."""
        container, before = pod.container, await self._hands.look(pod)
        pod.asked = True
        answer = await self._hands.signal(pod, signal.SIGKILL)
        self._exited(container, answer["gone"])
        await self._hands.api.delete(self._path(pod), grace_s=1, uid=pod.uid)
        code, reason = await self._exit_code(fleet, pod, container, EXIT_CODE_BOUND_S)
        proof = {"exitCode": code, "reason": reason, "pid": answer["pid"], "goneNs": answer["gone"]}
        proof |= {"pod": pod.name, "node": pod.node, "before": before, "after": await self._hands.look(pod)}
        return Evidence(answer["t"], "kill", name, proof)

    async def _exit_code(self, fleet: Fleet, pod: Pod, container: str, bound_s: float) -> tuple[int, str]:
        """Raises DriverError if kubelet does not tell, or does not know."""
        found: tuple[int, str] = await until(
            f"exit code of {pod.name}", lambda: pod.ended.get(container), fleet.changed, bound_s
        )
        if found[1] == "ContainerStatusUnknown":
            raise DriverError(f"kubelet does not know how {pod.name} ended")
        return found

    async def terminate(self, fleet: Fleet, pod: Pod, name: str, timeout_s: float) -> Evidence:
        """As every orderly end of a pod: deleted, so kubelet runs preStop and sends SIGTERM."""
        pod.asked = True
        t = time.monotonic_ns()
        await self._hands.api.delete(self._path(pod), uid=pod.uid)
        return await self._ended(fleet, pod, name, t, "terminate", timeout_s)

    async def evict(self, fleet: Fleet, pod: Pod, name: str, timeout_s: float) -> Evidence | None:
        """None: a disruption budget said no. Raises DriverError."""
        metadata = {"name": pod.name, "namespace": self._hands.namespace}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        t = time.monotonic_ns()
        try:
            await self._hands.api.request("POST", f"{self._path(pod)}/eviction", body=body)
        except ApiError as error:
            if error.status == REFUSED:
                return None
            raise
        pod.asked = True
        return await self._ended(fleet, pod, name, t, "evict", timeout_s)

    async def _ended(
        self, fleet: Fleet, pod: Pod, name: str, t: int, kind: str, timeout_s: float
    ) -> Evidence:
        container = pod.container
        code, reason = await self._exit_code(fleet, pod, container, timeout_s + EXIT_CODE_BOUND_S)
        gone = fleet.exits.get(container, time.monotonic_ns())
        took = round((gone - t) / 1e6, 3)
        proof = {"exitCode": code, "reason": reason, "goneNs": gone, "drainMs": took}
        proof |= {"pod": pod.name, "node": pod.node, "after": await self._hands.look(pod)}
        return Evidence(t, kind, name, proof)

    async def pause(self, pod: Pod, name: str) -> Evidence:
        answer = await self._hands.signal(pod, signal.SIGSTOP)
        pod.paused = True
        proof = {"state": answer["state"].upper(), "pid": answer["pid"], "pod": pod.name, "node": pod.node}
        return Evidence(answer["t"], "pause", name, {**proof, "after": await self._hands.look(pod)})

    async def resume(self, pod: Pod, name: str) -> Evidence:
        answer = await self._hands.signal(pod, signal.SIGCONT)
        pod.paused = False
        return Evidence(answer["t"], "resume", name, {"pid": answer["pid"], "state": answer["state"]})
