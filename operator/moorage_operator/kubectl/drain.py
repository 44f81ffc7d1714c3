"""``kubectl moorage drain POD``: evict one server pod, and watch its connections go to 0."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable

from moorage_operator.errors import ApiError, TooMany, Unreachable
from moorage_operator.kubectl import pods
from moorage_operator.kubectl.cluster import Body, Cluster, Missing
from moorage_operator.kubectl.scrape import Scrape, scrape

Say = Callable[[str], None]

LOOK_SECONDS = 1.0
"""[s] Between looks at a pod that is going."""
REMIND_SECONDS = 10.0
"""[s] A line is printed at least so often, so that silence is not taken for a hang."""
MARGIN_SECONDS = 30.0
"""[s] Beyond the pod's own grace before it counts as stuck."""


def choose(cluster: Cluster, namespace: str, name: str) -> Body:
    """The pod, if it is a server of Moorage's. Raises :class:`Missing` with what to do instead."""
    pod = cluster.find("Pod", namespace, name)
    if pod is None:
        servers = cluster.all("Pod", namespace, f"{pods.NAME}=moorage,{pods.COMPONENT}=server")
        there = ", ".join(sorted(body["metadata"]["name"] for body in servers)) or "none"
        raise Missing(f"no pod {name} in namespace {namespace}; server pods there: {there}")
    if pods.labels(pod).get(pods.NAME) != "moorage" or pods.component(pod) != "server":
        kind = pods.component(pod) or "no part"
        raise Missing(
            f"pod {name} is {kind} of a RealtimeServer; only server pods hold clients that can be drained. "
            f"To restart it: kubectl -n {namespace} delete pod {name}"
        )
    return pod


def lonely(pod: Body, others: list[Body]) -> bool:
    """No other server of the object is ready: its clients have nowhere to go meanwhile."""
    return not any(
        pods.is_ready(other)
        and not other["metadata"].get("deletionTimestamp")
        and other["metadata"]["name"] != pod["metadata"]["name"]
        for other in others
        if pods.component(other) == "server"
    )


def refusal(pod: Body, message: str, budget: Body | None, servers: list[Body]) -> list[str]:
    """Why the eviction was refused, and what to do: the budget, who is not ready, the ways on."""
    namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    instance = pods.labels(pod).get(pods.INSTANCE, "NAME")
    lines = [f"refused: {message}"]
    if budget is None:
        return [*lines, "Another budget than the operator's covers this pod: kubectl get pdb -n " + namespace]
    status = budget.get("status") or {}
    lines.append(
        f"The budget {budget['metadata']['name']} keeps {status.get('desiredHealthy', '?')} ready; "
        f"now {status.get('currentHealthy', '?')} of {status.get('expectedPods', '?')} are."
    )
    waiting = [
        p["metadata"]["name"] + (" (going)" if p["metadata"].get("deletionTimestamp") else "")
        for p in servers
        if not pods.is_ready(p) or p["metadata"].get("deletionTimestamp")
    ]
    if waiting:
        lines.append(f"Not ready: {', '.join(sorted(waiting))}")
    return [
        *lines,
        "What to do:",
        f"  wait until the others are ready, then try again:  kubectl moorage status {instance} -n {namespace}",
        f"  make room first:                                  kubectl -n {namespace} scale rts {instance} --replicas=N",
        "  let it go in spite of the budget (its clients are still drained; others may be too few):",
        f"                                                    kubectl -n {namespace} delete pod {name}",
    ]


def progress(pod: Body, seen: Scrape, started: int | None) -> str:
    """One line about a pod that is going."""
    left = seen.connections
    if left is None and started is not None:
        return "no answer any more: its server has closed, Kubernetes is removing the pod"
    if left is None:
        return "going; its connections are not known" + (f" ({seen.error})" if seen.error else "")
    total = f" of {started}" if started is not None and started >= left else ""
    return f"draining: {left}{total} connections left"


class Drain:
    """One drain. ``sleep`` and ``clock`` [s, monotonic] are a test's way to be quick."""

    def __init__(
        self,
        cluster: Cluster,
        say: Say,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._say, self._sleep, self._clock = cluster, say, sleep, clock

    def run(self, pod: Body, *, dry_run: bool = False, timeout: float | None = None) -> int:
        """0: the pod is gone; 1: refused, or not gone within ``timeout`` [s] (default: its grace and 30 s)."""
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        instance = pods.labels(pod).get(pods.INSTANCE, "")
        servers = [
            p for p in pods.pods_of(self._cluster, namespace, instance) if pods.component(p) == "server"
        ]
        before = scrape(self._cluster, pod)
        if metadata.get("deletionTimestamp"):
            self._say(f"{name} is going already; watching it")
        else:
            if lonely(pod, servers):
                self._say(
                    f"note: no other server of {instance} is ready; its clients have none until a new one is"
                )
            try:
                self._cluster.evict(namespace, name, dry_run=dry_run)
            except TooMany as error:
                budget = self._budget(namespace, instance)
                for line in refusal(pod, str(error).split(": ", 1)[-1], budget, servers):
                    self._say(line)
                return 1
            held = before.connections
            what = "would be evicted" if dry_run else "eviction accepted"
            self._say(f"{name}: {what}" + (f", {held} connections" if held is not None else ""))
        if dry_run:
            return 0
        grace = pod["spec"].get("terminationGracePeriodSeconds") or 30
        return self._watch(pod, before.connections, timeout or grace + MARGIN_SECONDS)

    def _budget(self, namespace: str, instance: str) -> Body | None:
        try:
            return self._cluster.find("PodDisruptionBudget", namespace, instance)
        except ApiError:
            return None

    def _watch(self, pod: Body, started: int | None, timeout: float) -> int:
        namespace, name, uid = (pod["metadata"][key] for key in ("namespace", "name", "uid"))
        begin = self._clock()
        last, told = "", begin
        while (spent := self._clock() - begin) < timeout:
            try:
                now = self._cluster.find("Pod", namespace, name)
                if now is None or now["metadata"]["uid"] != uid:
                    return self._over(pod, spent)
                line = progress(now, scrape(self._cluster, now), started)
            except Unreachable as error:
                line = f"the API server does not answer ({error}); the drain goes on without it"
            if line != last or self._clock() - told >= REMIND_SECONDS:
                self._say(f"{datetime.datetime.now():%H:%M:%S}  {line}")
                last, told = line, self._clock()
            self._sleep(LOOK_SECONDS)
        self._say(
            f"{name} is still there after {timeout:.0f} s. Its node may be lost: kubectl get node "
            f"{pod['spec'].get('nodeName', '')}; docs/operator/failures/node-lost.md"
        )
        return 1

    def _over(self, pod: Body, spent: float) -> int:
        namespace, instance = pod["metadata"]["namespace"], pods.labels(pod).get(pods.INSTANCE, "")
        there = [p for p in pods.pods_of(self._cluster, namespace, instance) if pods.component(p) == "server"]
        ready = sum(pods.is_ready(p) and not p["metadata"].get("deletionTimestamp") for p in there)
        self._say(
            f"{pod['metadata']['name']} is gone after {spent:.0f} s; {ready} servers of {instance} are ready"
        )
        return 0
