"""Rounds of ours and the peer's in turn, and the profiles that say where the time goes."""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moorage_chaos.bench import profile
from moorage_chaos.bench.client import BenchError
from moorage_chaos.bench.figures import APART, ONCE, OURS_ONLY, SAMPLED, Phase, Sample
from moorage_chaos.bench.processes import Redis
from moorage_chaos.bench.rig import Durations, rig
from moorage_chaos.bench.servers import KINDS, MOORAGE, Kind, cluster


@dataclass(slots=True)
class Bench:
    """Runs rounds one after another on one Redis and keeps what they yield."""

    redis: Redis
    folder: Path
    """For logs and raw profiles; may vanish afterwards."""
    durations: Durations
    say: Callable[[str], None]
    """Told of each step, one line."""
    samples: list[Sample] = field(default_factory=list)
    shares: dict[str, list[float]] = field(default_factory=dict)
    """The client's share of one core, by ``<server> <phase>``."""

    async def round(self, kind: Kind, replicas: int, phases: Sequence[Phase]) -> None:
        """One server, once; a phase of ``APART`` comes alone. Raises :class:`BenchError`."""
        settings = APART.get(phases[0])
        with cluster(kind, replicas, self.redis, self.folder, settings=settings) as started:
            async with rig(started, phases, self.durations) as ready:
                for phase in phases:
                    result = await ready.run(phase)
                    self.shares.setdefault(f"{kind.name} {phase}", []).append(result.client_share)
                    for figure, value in result.values.items():
                        self.samples.append(Sample(kind.name, replicas, figure, value))
                    shown = ", ".join(f"{figure} {value:.4g}" for figure, value in result.values.items())
                    self.say(f"{kind.name}, {replicas} replicas: {shown} (client {result.client_share:.0%})")

    async def run(self, plan: Mapping[int, Sequence[Phase]], kinds: Sequence[str], rounds: int) -> list[str]:
        """``rounds`` of every number of replicas, the servers in turn; of ``ONCE``, the first round only.

        A peer that fails is left out from then on, with its samples of that number of replicas; returns a line for
        each such failure.
        Raises :class:`BenchError` when ours fails.
        """
        failures: list[str] = []
        running = list(kinds)
        for replicas, phases in plan.items():
            for number in range(rounds):
                for name in tuple(running):
                    left_out = (ONCE if number else frozenset()) | (
                        frozenset() if name == MOORAGE.name else OURS_ONLY
                    )
                    due = [phase for phase in phases if phase not in left_out]
                    together = [phase for phase in due if phase not in APART]
                    try:
                        for batch in (together, *([phase] for phase in due if phase in APART)):
                            if batch:
                                await self.round(KINDS[name], replicas, batch)
                    except BenchError as error:
                        if name == MOORAGE.name:
                            raise BenchError(f"{name}, {replicas} replicas: {error}") from error
                        running.remove(name)
                        at = (name, replicas)
                        self.samples = [s for s in self.samples if (s.server, s.replicas) != at]
                        failures.append(f"{name} could not be measured with {replicas} replicas: {error}")
                        self.say(failures[-1])
        return failures

    def client_shares(self) -> dict[str, float]:
        """The median of the client's share of one core in each phase."""
        return {name: round(statistics.median(shares), 3) for name, shares in self.shares.items()}

    async def profiles(
        self, plan: Mapping[int, Sequence[Phase]], build: Path
    ) -> dict[tuple[int, Phase], profile.Profile]:
        """Sample our server in the ``SAMPLED`` phases of ``plan``; writes ``profile-*.txt``.

        Raises :class:`BenchError`.
        """
        found = {}
        for replicas, planned in plan.items():
            phases = [phase for phase in planned if phase in SAMPLED]
            if not phases:
                continue
            folder = self.folder / secrets.token_hex(4)
            folder.mkdir()
            with cluster(MOORAGE, replicas, self.redis, self.folder, sampled=True) as started:
                async with rig(started, phases, self.durations) as ready:
                    for phase in phases:
                        found[replicas, phase] = await profile.take(ready, phase, folder)
                        path = profile.save(found[replicas, phase], phase, replicas, build)
                        self.say(f"profile of {phase}, {replicas} replicas: {path.name}")
        return found
