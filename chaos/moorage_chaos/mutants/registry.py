"""Where mutants put themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

Patch = Callable[[], None]
Side = Literal["server", "client"]

MUTANTS: dict[str, tuple[str, Patch]] = {}
OF_CLIENTS: set[str] = set()
"""Those that break clients of ``moorage.client``, which live in the harness's own processes."""
UNBITTEN = {"ignore-fault"}
"""Those that must make their rows ``unknown``, not failed: nothing was done, so nothing can be judged."""


def mutant(name: str, sentence: str, side: Side = "server") -> Callable[[Patch], Patch]:
    """Register a function that breaks the process it is called in."""

    def keep(patch: Patch) -> Patch:
        if name in MUTANTS:
            raise ValueError(f"two mutants are named {name}")
        MUTANTS[name] = (sentence, patch)
        if side == "client":
            OF_CLIENTS.add(name)
        return patch

    return keep


def replace(owner: Any, name: str, value: Any) -> None:
    """Put ``value`` in the place of a function of the server. AttributeError if there is nothing to
    replace.
    """
    if not hasattr(owner, name):
        raise AttributeError(f"{owner!r} has no {name}: the mutant does not fit the server any more")
    setattr(owner, name, value)


class Every:
    """True at each n-th call: faults that spare most of the traffic are the ones checkers may miss."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._count = 0

    def __call__(self) -> bool:
        self._count += 1
        return self._count % self._n == 0
