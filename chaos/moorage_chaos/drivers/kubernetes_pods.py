"""Pods of a RealtimeServer as places: who is where, ready, going or dead, as the API server and the nodes tell it.

A *place* (``replica-1`` …) holds one pod at a time. When its pod is going or gone, the oldest pod that has no place
yet takes it; a roll with surge therefore shows as places that change hands.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from moorage_chaos.drivers.base import State
from moorage_chaos.drivers.kubernetes_api import Body

PORT = 3005
METRICS_PORT = 9090
_REPLICA = re.compile(r"replica[\"']?\s*[=:]\s*[\"']?([A-Za-z0-9_.-]+)")


def selector(name: str, component: str = "server") -> str:
    """Label selector of a RealtimeServer's pods."""
    return f"app.kubernetes.io/instance={name},app.kubernetes.io/component={component}"


def replica_id(log: str) -> str:
    """The id by which a server introduces itself, from the line it prints when it serves; empty if not there."""
    for line in log.splitlines():
        if "serving" in line and (found := _REPLICA.search(line)):
            return found.group(1)
    return ""


@dataclass
class Pod:
    """One pod. ``container`` is the id of the container that runs, or ran last."""

    name: str
    uid: str
    created: str
    main: str
    """Name of the container that counts: the operator calls it as the component, server, worker or redis."""
    ip: str = ""
    node: str = ""
    container: str = ""
    running: bool = False
    ready: bool = False
    going: bool = False
    """It has a deletion timestamp, or is deleted."""
    ended: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Container id -> exit code and reason, as kubelet tells."""
    link: str = ""
    """The place it has, or had."""
    id: str = ""
    """The replica's id of the container that runs, or ran last."""
    paused: bool = False
    asked: bool = False
    """The harness itself is ending it."""
    lost: str = ""
    """Container of which the node told the end: what the API server still says of it is old."""
    told: set[str] = field(default_factory=set)
    """Containers whose death is in the history."""

    @classmethod
    def of(cls, body: Body, main: str) -> Pod:
        """From an object of the API server."""
        metadata = body["metadata"]
        pod = cls(metadata["name"], metadata["uid"], metadata["creationTimestamp"], main)
        pod.update(body)
        return pod

    def update(self, body: Body) -> None:
        status = body.get("status") or {}
        self.ip = status.get("podIP", self.ip)
        self.node = body["spec"].get("nodeName", self.node)
        self.going = self.going or bool(body["metadata"].get("deletionTimestamp"))
        conditions = {c["type"]: c["status"] for c in status.get("conditions") or []}
        for container in status.get("containerStatuses") or []:
            if container["name"] != self.main:
                continue
            for when in ("lastState", "state"):
                ended = (container.get(when) or {}).get("terminated")
                if ended and ended.get("containerID"):
                    self.ended[plain_id(ended["containerID"])] = (ended["exitCode"], ended.get("reason", ""))
            current = plain_id(container.get("containerID", ""))
            self.running = "running" in (container.get("state") or {}) and current != self.lost
            if self.running and current != self.container:
                self.container, self.id, self.paused = current, "", False
        self.ready = conditions.get("Ready") == "True" and self.running and not self.going


def plain_id(container_id: str) -> str:
    """``containerd://abc`` -> ``abc``."""
    return container_id.partition("://")[2]


class PodPlace:
    """Meets :class:`moorage_chaos.drivers.base.Replica`; without a URL it is a worker's. Changed by the driver only."""

    def __init__(self, link: str) -> None:
        self.link = link
        self.generation = 0
        self.pod: Pod | None = None
        self.url = ""
        self._last = ""

    @property
    def id(self) -> str:
        if self.pod is not None and self.pod.id:
            self._last = self.pod.id
        return self._last

    @property
    def pid(self) -> int:
        """0: a pid of a node means nothing here, and nobody may signal by it."""
        return 0

    @property
    def state(self) -> State:
        pod = self.pod
        if pod is None or (not pod.running and (pod.going or pod.ended or pod.lost)):
            return "dead"
        if not pod.running:
            return "starting"
        if pod.paused:
            return "paused"
        return "ready" if pod.ready and pod.id else "not-ready"

    @property
    def direct_url(self) -> str:
        return f"http://{self.pod.ip}:{PORT}" if self.pod is not None and self.pod.ip else ""

    @property
    def metrics_url(self) -> str:
        return f"http://{self.pod.ip}:{METRICS_PORT}/metrics" if self.pod is not None and self.pod.ip else ""


class Fleet:
    """All pods and places of one system, from a stream of pod events. No I/O here."""

    def __init__(self, component: str, stem: str, notify: Callable[[str, int, dict[str, Any]], None]) -> None:
        self.component, self._stem = component, stem
        self.places: list[PodPlace] = []
        self.pods: dict[str, Pod] = {}
        """By uid; those that are gone stay for as long as the system lives."""
        self.changed = asyncio.Event()
        """Set at each change; whoever waits clears it first."""
        self.exits: dict[str, int] = {}
        """Container id -> monotonic ns at which its node saw it end."""
        self._notify = notify
        self._asked = False
        self._by_id: dict[str, PodPlace] = {}

    def resize(self, count: int) -> None:
        """Have ``count`` places, those that stay as they are."""
        for place in self.places[count:]:
            if place.pod is not None:
                place.pod.link = ""
        self.places = self.places[:count]
        self.places += [PodPlace(f"{self._stem}-{n}") for n in range(len(self.places) + 1, count + 1)]
        self._assign()

    def ask(self, value: bool) -> None:
        """Whether the harness itself ends, by another setup, what ends now; those that go already stay as they are.
        Pods that were not heard of yet count, too: the first setup comes before the first list."""
        self._asked = value
        for pod in self.pods.values():
            if not pod.going:
                pod.asked = value

    def calm(self, count: int) -> bool:
        """``count`` pods are to stay, and of those that go none still runs. The count is asked for, since the object
        can be known to be settled before it is heard that pods of before go."""
        stay = sum(not pod.going for pod in self.pods.values())
        return stay == count and not any(pod.going and pod.running for pod in self.pods.values())

    def place_of(self, replica: str) -> PodPlace:
        """Raises KeyError."""
        return self._by_id[replica]

    # -- what is heard ---------------------------------------------------------------------------------
    def heard(self, kind: str, body: Body) -> None:
        """An event of the API server's pod watch."""
        if kind == "LISTED":
            listed = {item["metadata"]["uid"] for item in body.get("items") or []}
            for item in body.get("items") or []:
                self._pod(item)
            for pod in self.pods.values():
                if pod.uid not in listed:
                    self._gone(pod)
        elif kind == "DELETED":
            self._gone(self._pod(body))
        else:
            self._pod(body)
        self._assign()
        self.changed.set()

    def _pod(self, body: Body) -> Pod:
        metadata = body["metadata"]
        pod = self.pods.get(metadata["uid"])
        if pod is None:
            pod = Pod(metadata["name"], metadata["uid"], metadata["creationTimestamp"], self.component)
            pod.asked = self._asked
            self.pods[pod.uid] = pod
        was_ready, was_going, was_running = pod.ready, pod.going, pod.running
        pod.update(body)
        if was_ready and not pod.ready and pod.running:
            self._tell("draining", pod, going=pod.going)
        elif pod.going and not was_going and was_running:
            self._tell("draining", pod, going=True)
        elif pod.ready and not was_ready and pod.id:
            self._tell("alive", pod)
        self._deaths(pod)
        return pod

    def _gone(self, pod: Pod) -> None:
        pod.going, pod.ready, pod.running = True, False, False
        self._deaths(pod)

    def exited(self, container: str, t_ns: int) -> None:
        """The node saw a container's process end; kubelet will tell its exit code."""
        self.exits[container] = t_ns
        for pod in self.pods.values():
            if pod.container == container:
                pod.ready = pod.running = False
                pod.lost = container
                self._deaths(pod)
        self._assign()
        self.changed.set()

    def introduced(self, pod: Pod, container: str, replica: str) -> None:
        """The replica's id was read."""
        if pod.container != container:
            return
        pod.id = replica
        self._assign()
        if pod.ready:
            self._tell("alive", pod)
        self.changed.set()

    def _deaths(self, pod: Pod) -> None:
        """Tell each end once its exit code is known."""
        for container, (code, reason) in pod.ended.items():
            if container in pod.told:
                continue
            pod.told.add(container)
            seen = {} if container in self.exits else {"late": True}
            self._tell(
                "death", pod, t=self.exits.get(container), code=code, reason=reason, asked=pod.asked, **seen
            )

    def _tell(self, op: str, pod: Pod, *, t: int | None = None, **value: Any) -> None:
        moment = time.monotonic_ns() if t is None else t
        self._notify(op, moment, {"replica": pod.id, "link": pod.link, "pod": pod.name, **value})

    # -- places ----------------------------------------------------------------------------------------
    def _assign(self) -> None:
        held = {place.pod.uid for place in self.places if place.pod is not None}
        free = [pod for pod in self.pods.values() if not pod.going and pod.uid not in held]
        free.sort(key=lambda pod: (pod.created, pod.name))
        for place in self.places:
            if (place.pod is None or place.pod.going) and free:
                place.pod = free.pop(0)
                place.pod.link = place.link
                place.generation += 1
            if place.pod is not None and place.pod.id:
                self._by_id[place.pod.id] = place
