"""Deliberately broken servers: each must turn its rows red, which proves that their checkers can fail.

``python -m moorage_chaos.mutants NAME serve`` runs ``moorage serve`` with one thing broken. Here live patches
of classes of ``moorage``, applied in the server's own process before it starts (a worker's too, and for what breaks
a client in the lane's, where clients live); nothing in the product knows of them. Which row each one belongs to is said
by the row (``Scenario.mutants``).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from moorage_chaos.mutants import calls, events, harness, limits, logged, membership, poison, returns, tasks
from moorage_chaos.mutants.logged import IN_PAGES
from moorage_chaos.mutants.registry import MUTANTS, OF_CLIENTS

__all__ = [
    "IN_PAGES",
    "NAMES",
    "OF_CLIENTS",
    "apply",
    "calls",
    "events",
    "harness",
    "limits",
    "logged",
    "membership",
    "poison",
    "returns",
    "run",
    "tasks",
]

NAMES: dict[str, str] = {name: sentence for name, (sentence, _) in MUTANTS.items()}
"""Name to what is broken, in one sentence."""


def apply(name: str) -> None:
    """Break this process. Raises KeyError for a name that is not in :data:`NAMES`."""
    MUTANTS[name][1]()


def run(name: str, argv: Sequence[str]) -> int:
    """Apply the mutant and run the server's command line with ``argv``; returns its exit code."""
    from moorage.cli import main

    apply(name)
    sys.stderr.write(f"MUTANT {name}: {NAMES[name]}\n")
    return main(list(argv))
