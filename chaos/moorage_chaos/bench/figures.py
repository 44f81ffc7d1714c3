"""What is measured, how it is named, what it should be: pure, from samples to rows.

A *figure* is taken in a *phase* (one kind of load) at a number of replicas. Its slug is the figure's name, with
the suffix ``-2`` or ``-8`` where the number of replicas is not the usual 3: ``rpc-p50-sequential`` is of three
replicas, ``rpc-p50-sequential-8`` of eight. What is taken at one size only has no suffix either.
``rpc-cost-8-over-2`` and ``rpc-cpu-8-over-2`` are quotients.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Phase = Literal[
    "idle", "sequential", "concurrent", "flood", "paced", "remote", "asking", "asking-busy", "dying", "crowd",
    "returns", "standstill", "log", "churn",
]  # fmt: skip
Better = Literal["lower", "higher"]
PHASES: tuple[Phase, ...] = (
    "idle", "sequential", "concurrent", "flood", "paced", "remote", "asking", "asking-busy", "standstill", "dying",
    "crowd", "log", "returns", "churn",
)  # fmt: skip
"""In the order in which a round runs them: ``dying`` ends a replica, so nothing with several comes after it."""
ONCE: frozenset[Phase] = frozenset({"crowd", "churn", "returns", "standstill"})
"""Long, and the same each time: in the first round only."""
OURS_ONLY: frozenset[Phase] = frozenset({"dying", "log"})
"""The asking node of the bench is ours, so with a dead peer it would be measured twice. The peer has no event log."""
APART: Mapping[Phase, Mapping[str, str]] = {
    "returns": {"RECOVERY": "1"},
    "churn": {"MOORAGE_RECOVERY_WINDOW_MS": "0"},
}
"""Phases that have a cluster of their own, with these settings. The peer recovers clients only when told to, which
costs it something. What ours remembers for two minutes of each socket that may come back is no growth."""
SAMPLED: frozenset[Phase] = frozenset({"idle", "sequential", "concurrent", "flood", "paced", "remote"})
"""Those of which a profile says where the time goes."""

USUAL_REPLICAS = 3
"""[replicas] The number that carries no suffix (DESIGN: a cluster of three)."""
REPLICAS = (3, 2, 8)
"""[replicas] The numbers that are measured, the usual one first."""
SIZES = (*REPLICAS, 1)
"""[replicas] With that of the figures of one process."""


@dataclass(frozen=True, slots=True)
class Goal:
    """``of`` the row must be at most (or at least) ``limit``; ``ratio`` is ours divided by the peer's."""

    of: Literal["ratio", "ours"]
    sign: Literal["<=", ">="]
    limit: float

    def __str__(self) -> str:
        return f"{self.of} {self.sign} {self.limit:g}"

    def met(self, row: Mapping[str, Any]) -> bool | None:
        """None when the row lacks what the goal speaks of (no peer)."""
        value = row.get(self.of)
        if value is None:
            return None
        return bool(value <= self.limit if self.sign == "<=" else value >= self.limit)


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that a phase yields."""

    name: str
    phase: Phase
    unit: str
    better: Better
    goal: Goal | None = None
    sizes: tuple[int, ...] = REPLICAS
    """[replicas] At which it is taken."""

    def slug(self, replicas: int) -> str:
        """Stable name of the row."""
        usual = replicas == USUAL_REPLICAS or len(self.sizes) == 1
        return self.name if usual else f"{self.name}-{replicas}"


HALF = Goal("ratio", "<=", 0.5)
TWICE = Goal("ratio", ">=", 2.0)
NONE = Goal("ours", "<=", 0.0)
USUAL = (USUAL_REPLICAS,)
SINGLE = (1,)
PAIR = (2,)
FIGURES: tuple[Figure, ...] = (
    Figure("rpc-p50-sequential", "sequential", "ms", "lower", HALF),
    Figure("rpc-p99-sequential", "sequential", "ms", "lower"),
    Figure("rpc-rate-1", "sequential", "calls/s", "higher", TWICE),
    Figure("rpc-rate-64", "concurrent", "calls/s", "higher", TWICE),
    Figure("rpc-cpu-per-call", "concurrent", "µs", "lower"),
    Figure("rpc-redis-cpu-per-call", "concurrent", "µs", "lower"),
    Figure("idle-cpu-per-replica", "idle", "ms/s", "lower"),
    Figure("broadcast-rate", "flood", "deliveries/s", "higher", Goal("ratio", ">=", 1.3)),
    Figure("broadcast-cpu-per-delivery", "paced", "µs", "lower", Goal("ratio", "<=", 0.7)),
    Figure("broadcast-redis-cpu-per-delivery", "paced", "µs", "lower"),
    Figure("remote-emit-p50-ms", "remote", "ms", "lower", Goal("ratio", "<=", 1.0), USUAL),
    Figure("remote-emit-p99-ms", "remote", "ms", "lower", HALF, USUAL),
    Figure("fetch-sockets-p99-ms", "asking", "ms", "lower", Goal("ours", "<=", 10.0), USUAL),
    Figure("fetch-sockets-p99-busy-ms", "asking-busy", "ms", "lower", Goal("ours", "<=", 10.0), USUAL),
    Figure("fetch-sockets-dead-peer-ms", "dying", "ms", "lower", Goal("ours", "<=", 1000.0), USUAL),
    Figure("recovery-lost", "returns", "copies", "lower", NONE, USUAL),
    Figure("recovery-doubled", "returns", "copies", "lower", NONE, USUAL),
    Figure("recovery-refused", "returns", "returns", "lower", NONE, USUAL),
    Figure("redis-stop-lost", "standstill", "copies", "lower", NONE, USUAL),
    Figure("redis-stop-disorder", "standstill", "copies", "lower", NONE, USUAL),
    Figure("log-rate", "log", "events/s", "higher", Goal("ours", ">=", 5000.0), PAIR),
    Figure("log-p99-ms", "log", "ms", "lower", Goal("ours", "<=", 25.0), PAIR),
    Figure("log-paced-rate", "log", "events/s", "higher", None, PAIR),
    Figure("log-append-p50-ms", "log", "ms", "lower", Goal("ours", "<=", 0.5), PAIR),
    Figure("log-cpu-per-event", "log", "µs", "lower", None, PAIR),
    Figure("log-cpu-per-unwanted-event", "log", "µs", "lower", None, PAIR),
    Figure("log-channel-replicas", "log", "replicas", "higher", None, PAIR),
    Figure("log-replay-cpu-per-event", "log", "µs", "lower", None, PAIR),
    Figure("resume-redis-commands", "log", "commands", "lower", Goal("ours", "<=", 10.0), PAIR),
    Figure("resume-1000-ms", "log", "ms", "lower", None, PAIR),
    Figure("rss-per-websocket-kib", "crowd", "KiB", "lower", Goal("ours", "<=", 26.0), SINGLE),
    Figure("rss-growth-kib", "churn", "KiB", "lower", Goal("ours", "<=", 1024.0), SINGLE),
    Figure("disconnect-ms", "crowd", "ms", "lower", Goal("ours", "<=", 0.1), SINGLE),
)
"""Goals: those of the issues of the bench (calls), of the cluster (broadcasts, sockets) and of the event log."""


@dataclass(frozen=True, slots=True)
class Quotient:
    """``figure`` at ``over`` replicas divided by the same at ``under``, each of one server."""

    name: str
    figure: str
    over: int
    under: int
    goal: Goal


GROWTH = Goal("ours", "<=", 1.2)
QUOTIENTS: tuple[Quotient, ...] = (
    Quotient("rpc-cost-8-over-2", "rpc-p50-sequential", 8, 2, GROWTH),
    Quotient("rpc-cpu-8-over-2", "rpc-cpu-per-call", 8, 2, GROWTH),
)
"""Eight replicas cost at most 1.2 times what two cost: the wait of a call, and the servers' work for it."""

_FIGURE = {figure.name: figure for figure in FIGURES}


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure of one round: ``server`` is a key of ``servers.KINDS``."""

    server: str
    replicas: int
    figure: str
    value: float


def _places() -> dict[str, tuple[Figure, int]]:
    """Figure and number of replicas of every row that is no quotient."""
    return {figure.slug(size): (figure, size) for size in SIZES for figure in FIGURES if size in figure.sizes}


def all_slugs() -> list[str]:
    """Every name a row can have, in the order of the table."""
    return [*_places(), *(quotient.name for quotient in QUOTIENTS)]


def needed(only: Iterable[str]) -> dict[int, list[Phase]]:
    """Which phases to run at which number of replicas to have the rows ``only`` (empty: all).

    Raises :class:`ValueError` that names the first unknown slug.
    """
    places = {name: [place] for name, place in _places().items()}
    for quotient in QUOTIENTS:
        figure = _FIGURE[quotient.figure]
        places[quotient.name] = [(figure, quotient.over), (figure, quotient.under)]
    found: dict[int, set[Phase]] = {}
    for name in list(only) or all_slugs():
        if name not in places:
            raise ValueError(f"no figure is named {name!r}; there are: {', '.join(all_slugs())}")
        for figure, replicas in places[name]:
            found.setdefault(replicas, set()).add(figure.phase)
    return {size: [phase for phase in PHASES if phase in found[size]] for size in SIZES if size in found}


def rounded(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")


def _row(
    name: str,
    unit: str,
    better: Better,
    goal: Goal | None,
    ours: float,
    peer: float | None,
    peer_name: str | None,
) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "unit": unit, "ours": rounded(ours)}
    if peer is not None:
        row |= {"peer": rounded(peer), "peerName": peer_name}
        if peer:
            row["ratio"] = rounded(ours / peer)
    row["better"] = better
    if goal is not None:
        row["goal"] = str(goal)
        met = goal.met(row)
        if met is not None:
            row["met"] = met
    return row


def rows(samples: Sequence[Sample], peer_name: str | None, only: Iterable[str] = ()) -> list[dict[str, Any]]:
    """The ``runs`` of ``build/bench.json``: medians over the rounds, ours beside the peer's, goals judged.

    A row of which our server has no sample is left out, and so is one that is not in ``only`` (empty: all).
    """
    values: dict[tuple[str, int, str], list[float]] = {}
    for sample in samples:
        values.setdefault((sample.server, sample.replicas, sample.figure), []).append(sample.value)
    median = {key: statistics.median(found) for key, found in values.items()}
    wanted = set(only) or set(all_slugs())
    table: list[dict[str, Any]] = []
    for name, (figure, replicas) in _places().items():
        ours = median.get(("moorage", replicas, figure.name))
        peer = median.get(("node", replicas, figure.name))
        if ours is not None and name in wanted:
            table.append(_row(name, figure.unit, figure.better, figure.goal, ours, peer, peer_name))
    for quotient in QUOTIENTS:
        pair = [
            (
                median.get((server, quotient.over, quotient.figure)),
                median.get((server, quotient.under, quotient.figure)),
            )
            for server in ("moorage", "node")
        ]
        shares = [over / under if over is not None and under else None for over, under in pair]
        if shares[0] is not None and quotient.name in wanted:
            table.append(_row(quotient.name, "x", "lower", quotient.goal, shares[0], shares[1], peer_name))
    return table


def missed(table: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows whose goal was judged and not met."""
    return [row for row in table if row.get("met") is False]
