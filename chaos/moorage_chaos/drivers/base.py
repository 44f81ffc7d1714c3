"""What a driver is: the place where replicas and their Redis live.

A driver owns one *system*: N replicas, one Redis, and a front that stands for the Service. Scenarios and
clients see only these interfaces. Times called ``t_ns`` are CLOCK_MONOTONIC nanoseconds, the clock of
histories.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

State = Literal["starting", "ready", "not-ready", "paused", "dead"]

Can = Literal[
    "kill",
    "pause",
    "terminate",
    "client-links",
    "redis-links",
    "redis-kill",
    "redis-pause",
    "redis-keep",
    "cluster",
]
"""What a driver is able to do; a scenario lists what it needs of these. ``cluster``: it is a Kubernetes, with an
operator (:mod:`moorage_chaos.cluster`)."""

Notify = Callable[[str, int, dict[str, Any]], None]
"""``(op, t_ns, value)``: ``death`` ``{replica, link, code, asked}`` (of workers too), ``alive`` ``{replica, link}``,
``draining`` ``{replica, link}`` (was ready, is not any more, still runs); on Kubernetes also ``stalled``
``{replica, link}`` (it said that it did not run for a while) and ``endpoints`` ``{pods: [[name, conditions]]}``."""


class DriverError(Exception):
    """The system could not be brought to the state that was asked for: the row ends as unknown."""


class CannotBuild(DriverError):
    """This driver has no such system: rows with that setup are unknown, the others go on."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Proof from outside that a fault bit: when, what, on whom, and what was seen."""

    t_ns: int
    kind: str
    target: str
    proof: dict[str, Any] = field(default_factory=dict)

    def as_value(self) -> dict[str, Any]:
        """Shape for a history: ``{"tNs", "kind", "target", "proof"}``."""
        return {"tNs": self.t_ns, "kind": self.kind, "target": self.target, "proof": self.proof}


@dataclass(frozen=True, slots=True)
class Setup:
    """How a system is built; a row that differs from what runs gets a system built anew (about 1 s, warm)."""

    replicas: int = 3
    env: Mapping[str, str] = field(default_factory=dict)
    """More environment for every replica, e.g. ``{"MOORAGE_RECOVERY_WINDOW_MS": "5000"}``."""
    redis_links: bool = False
    """Replicas reach Redis through the front, so that ``replica-1:redis`` can be cut, frozen, slowed. It
    adds the cost of one hop: rows that judge latencies leave it off."""
    namespaces: bool = False
    """As ``redis_links``, and where the driver can do it, cut links lose packets in the kernel: replicas in network
    namespaces of their own (:mod:`moorage_chaos.drivers.namespaces`)."""
    redis_keep: bool = False
    """Redis writes an append-only file (fsync each second), so that a restart may keep its data."""
    workers: int = 0
    """Processes of ``moorage worker`` beside the replicas, under record (:mod:`moorage_chaos.worker`)."""
    state_redis: bool = False
    """A second Redis, as ``STATE_URL`` of all; :attr:`Driver.redis` is then the one of events alone."""


class Place(Protocol):
    """Where a process of ours runs, a replica or a worker. Its process, id and generation change."""

    @property
    def link(self) -> str:
        """``replica-1`` …, ``worker-1`` …: stable name of the place; of a replica's link in the front too."""

    @property
    def id(self) -> str:
        """MOORAGE_REPLICA_ID of the running process, as in the CONNECT payload's ``replica``; new at each
        start."""

    @property
    def generation(self) -> int:
        """How many processes this place has had, from 1."""

    @property
    def pid(self) -> int:
        """Process id of the current or last process (the pod's process on its node, or 0 if that is not
        known)."""

    @property
    def state(self) -> State: ...


class Replica(Place, Protocol):
    """A place that clients can reach."""

    @property
    def url(self) -> str:
        """``http://host:port`` that always leads to this replica, through its link: link faults apply."""

    @property
    def direct_url(self) -> str:
        """``http://host:port`` of the process itself: no front between, no link faults."""

    @property
    def metrics_url(self) -> str:
        """``http://host:port/metrics``, direct."""


class RedisControl(Protocol):
    """The Redis of the system."""

    @property
    def up(self) -> bool: ...

    @property
    def url(self) -> str:
        """For looking at the keyspace and for ``CLIENT KILL``; never goes through the front."""

    async def kill(self) -> Evidence:
        """SIGKILL; proof: exit code and a refused connection."""

    async def start(self, *, keep: bool) -> None:
        """Start again on the same port, answering PING on return; ``keep`` False: with empty data."""

    async def pause(self) -> Evidence:
        """SIGSTOP; proof: process state ``T``."""

    async def resume(self) -> None: ...


class Links(Protocol):
    """Faults of the network. A link is ``replica-1`` (clients <-> replica) or ``replica-1:redis``."""

    async def cut(self, link: str) -> Evidence:
        """Reset (RST) every connection of the link now; new ones are accepted. Proof: ``{"connections":
        n}``."""

    async def refuse(self, link: str) -> Evidence:
        """New connections are reset at once; those open live on. ``cut`` + ``refuse`` is a link that is
        down."""

    async def freeze(self, link: str) -> Evidence:
        """Nothing is read or forwarded any more, connections stay open (a half-open link, back pressure)."""

    async def blackhole(self, link: str, direction: Literal["both", "up", "down"] = "both") -> Evidence:
        """What is sent is swallowed. ``up``: from the client (or the replica, on a Redis link) to the server;
        ``down``: the way back; one of them alone is a one-way partition. Connections whose bytes were lost
        are reset when the link heals, as nothing sensible can follow on them."""

    async def slow(self, link: str, *, delay_ms: float = 0, bytes_per_s: int = 0) -> Evidence:
        """Add ``delay_ms`` each way, and at most ``bytes_per_s`` each way (0: no limit)."""

    async def heal(self, link: str) -> None:
        """Undo all of these."""

    async def connections(self, link: str) -> int: ...


class Driver(Protocol):
    """A running system. Every method is bounded and raises :class:`DriverError`."""

    @property
    def kind(self) -> Literal["local", "kubernetes"]: ...

    can: frozenset[Can]
    setup: Setup
    pace: float
    """How much longer than with local processes a row may take: its bound is multiplied by it."""

    @property
    def replicas(self) -> Sequence[Replica]: ...

    @property
    def workers(self) -> Sequence[Place]: ...

    @property
    def redis(self) -> RedisControl: ...

    @property
    def links(self) -> Links: ...

    url: str
    """The front: ``http://host:port``, round robin over the ready replicas for each new connection."""
    secret_key: str
    listeners: list[Notify]

    def replica(self, replica_id: str) -> Replica:
        """By the id in the CONNECT payload, of any generation. Raises KeyError."""

    async def replica_of(self, sid: str) -> Replica:
        """By the line that each replica prints on connect, which holds the ``socket.id``. Raises KeyError."""

    async def start(self, setup: Setup) -> None:
        """Bring the system up: all replicas ready and told to the front on return."""

    async def stop(self) -> None:
        """End everything that was started. Safe to call twice."""

    async def restore(self, timeout_s: float = 60.0) -> None:
        """Back to the start state: links healed, Redis up, all replicas running, ready, known to the front,
        and the registries of all replicas equal (``rpc_registrations`` of /metrics)."""

    async def door(self, name: str) -> str:
        """``http://host:port``: one more way into the front, through a link ``name`` of its own, so that one
        client can be cut from all replicas. Lives until the system is built anew."""

    async def told(self, place: Place, prefix: str) -> list[str]:
        """Whole lines that begin with ``prefix``, of what all processes of the place have printed so far (those that
        were killed too), oldest first, without the prefix."""

    async def kill(self, place: Place) -> Evidence:
        """SIGKILL. Returns when the process is gone; ``t_ns`` is when the signal was sent, proof
        ``{"exitCode": -9, "pid", "goneNs"}``. It stays dead until :meth:`launch` (no restart by itself)."""

    async def terminate(self, place: Place, timeout_s: float = 30.0) -> Evidence:
        """SIGTERM and wait for the end (drain included); proof ``{"exitCode", "pid", "goneNs",
        "drainMs"}``."""

    async def pause(self, place: Place) -> Evidence:
        """SIGSTOP of the process; proof ``{"state": "T", "pid"}``."""

    async def resume(self, place: Place) -> Evidence: ...

    async def launch(self, place: Place, *, replica_id: str | None = None, wait: bool = True) -> None:
        """Start a process at a place that is dead, under a new id (or the one given, e.g. the old one again).
        ``wait``: return when it is ready: a replica is in the front's rotation, a worker has begun."""

    async def wait_ready(self, place: Place | None = None, timeout_s: float = 15.0) -> None:
        """That replica or worker (None: all replicas) is ready, and the front knows it."""

    async def metrics(self, replica: Replica) -> dict[str, float]:
        """Sum per metric name (labels summed up) of the replica's /metrics."""
