"""Profiles of the replicas, merged and written for people: where the time of one phase goes."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from moorage_chaos.bench.client import BenchError
from moorage_chaos.bench.figures import Phase
from moorage_chaos.bench.report import write_whole
from moorage_chaos.bench.rig import Rig

WRITE_S = 10.0
"""[s] Bound of the wait for a replica's profile."""
LINES = 40
NOTE_LINES = 5


@dataclass(frozen=True, slots=True)
class Profile:
    """CPU seconds of all replicas in one phase, by function."""

    total: float
    own: Mapping[str, float]
    under: Mapping[str, float]


def merge(parts: Iterable[Mapping[str, Any]]) -> Profile:
    """One profile of the sampler's files, given as values."""
    total = 0.0
    own: Counter[str] = Counter()
    under: Counter[str] = Counter()
    for part in parts:
        total += float(part["total"])
        own.update(part["self"])
        under.update(part["under"])
    return Profile(total, own, under)


def _top(of: Mapping[str, float], total: float, lines: int) -> list[str]:
    ordered = sorted(of.items(), key=lambda item: -item[1])[:lines]
    return [f"{spent / total:7.1%}  {spent:8.3f} s  {name}" for name, spent in ordered] if total else []


def text(profile: Profile, title: str) -> str:
    """The page ``build/profile-*.txt``: by the function itself, then with all it calls."""
    lines = [title, f"CPU time of the replicas' main threads: {profile.total:.3f} s", ""]
    lines += [
        "In the function itself, with the C code it calls:",
        *_top(profile.own, profile.total, LINES),
        "",
    ]
    lines += ["In the function and all it calls:", *_top(profile.under, profile.total, LINES), ""]
    return "\n".join(lines)


def note(profile: Profile) -> str:
    """One sentence for a missed goal: the functions that take most."""
    ordered = sorted(profile.own.items(), key=lambda item: -item[1])[:NOTE_LINES]
    return "; ".join(f"{spent / profile.total:.0%} {name}" for name, spent in ordered if profile.total)


async def take(rig: Rig, phase: Phase, folder: Path) -> Profile:
    """Run ``phase`` on a sampled cluster and merge its replicas' profiles. Raises :class:`BenchError`."""
    for process in rig.processes:
        process.tell("start")
    await rig.run(phase)
    files = [folder / f"{process.name.replace(' ', '-')}-{phase}.json" for process in rig.processes]
    for process, file in zip(rig.processes, files, strict=True):
        process.tell(f"stop {file}")
    until = time.monotonic() + WRITE_S
    while not all(file.exists() for file in files):
        if time.monotonic() > until:
            raise BenchError("a replica did not write its profile")
        await asyncio.sleep(0.05)
    return merge(orjson.loads(file.read_bytes()) for file in files)


def save(profile: Profile, phase: Phase, replicas: int, build: Path) -> Path:
    """Write ``build/profile-<phase>-<replicas>.txt``."""
    path = build / f"profile-{phase}-{replicas}.txt"
    write_whole(path, text(profile, f"Moorage, {replicas} replicas, phase {phase}"))
    return path
