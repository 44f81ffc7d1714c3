"""What a driver is: the place where replicas and their Redis live.

A driver owns one *system*: N replicas, one Redis, and a front that stands for the Service. Scenarios and
clients see only these interfaces. Times called ``t_ns`` are CLOCK_MONOTONIC nanoseconds, the clock of
histories.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

State = Literal["starting", "ready", "not-ready", "paused", "dead"]

Can = Literal[
    "kill", "pause", "terminate", "client-links", "redis-links", "redis-kill", "redis-pause", "redis-keep"
]
"""What a driver is able to do; a scenario lists what it needs of these."""

Notify = Callable[[str, int, dict[str, Any]], None]
"""``(op, t_ns, value)``: ``death`` ``{replica, link, code, asked}``, ``alive`` ``{replica, link}``,
``draining`` ``{replica, link}`` (was ready, is not any more, still runs)."""


class DriverError(Exception):
    """The system could not be brought to the state that was asked for: the row ends as unknown."""


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
    redis_keep: bool = False
    """Redis writes an append-only file (fsync each second), so that a restart may keep its data."""


class Replica(Protocol):
    """One replica. The object stands for the place (link, ports); its process, id and generation change."""

    @property
    def link(self) -> str:
        """``replica-1`` …: stable name of the place, and of its link in the front."""

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

    @property
    def replicas(self) -> Sequence[Replica]: ...

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

    async def kill(self, replica: Replica) -> Evidence:
        """SIGKILL. Returns when the process is gone; ``t_ns`` is when the signal was sent, proof
        ``{"exitCode": -9, "pid", "goneNs"}``. It stays dead until :meth:`launch` (no restart by itself)."""

    async def terminate(self, replica: Replica, timeout_s: float = 30.0) -> Evidence:
        """SIGTERM and wait for the end (drain included); proof ``{"exitCode", "pid", "goneNs",
        "drainMs"}``."""

    async def pause(self, replica: Replica) -> Evidence:
        """SIGSTOP of the process; proof ``{"state": "T", "pid"}``."""

    async def resume(self, replica: Replica) -> Evidence: ...

    async def launch(self, replica: Replica, *, replica_id: str | None = None, wait: bool = True) -> None:
        """Start a process at a place that is dead, under a new id (or the one given, e.g. the old one again).
        ``wait``: return when it is ready and in the front's rotation."""

    async def wait_ready(self, replica: Replica | None = None, timeout_s: float = 15.0) -> None:
        """That replica (None: all of them) answers /ready with 200 and the front knows it."""

    async def metrics(self, replica: Replica) -> dict[str, float]:
        """Sum per metric name (labels summed up) of the replica's /metrics."""

    async def spawn(self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
        """Another process of the system beside the replicas, ``moorage`` with ``argv`` (a worker): gets the
        same environment as a replica, log in the report folder, ended with the system."""


class Process(Protocol):
    """What :meth:`Driver.spawn` returns."""

    @property
    def pid(self) -> int: ...

    @property
    def exit_code(self) -> int | None:
        """None while it runs; ``-9`` after SIGKILL."""

    def send(self, number: signal.Signals) -> None: ...

    async def wait(self, timeout_s: float) -> int:
        """Exit code. Raises TimeoutError."""
