"""Which drivers there are, by the name given to ``--driver``."""

from __future__ import annotations

from moorage_chaos.drivers.base import Driver
from moorage_chaos.drivers.local import LocalConfig, LocalDriver

KINDS = ("local",)
"""Values of ``--driver``."""


def make(kind: str, config: LocalConfig) -> Driver:
    """A driver that is not started yet. Raises ValueError for an unknown kind."""
    if kind == "local":
        return LocalDriver(config)
    raise ValueError(f"there is no driver {kind!r}")
