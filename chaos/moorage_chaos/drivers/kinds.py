"""Which drivers there are, by the name given to ``--driver``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moorage_chaos.drivers.base import Driver
from moorage_chaos.drivers.local import LocalConfig, LocalDriver

KINDS = ("local", "kubernetes")
"""Values of ``--driver``."""


def make(
    kind: str,
    config: LocalConfig,
    kubernetes: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Driver:
    """A driver that is not started yet; ``kubernetes``: as :meth:`moorage_chaos.on_kubernetes.Options.as_json`, ``say``
    gets warnings. Raises ValueError for an unknown kind."""
    if kind == "local":
        return LocalDriver(config)
    if kind == "kubernetes" and kubernetes is not None:
        from moorage_chaos.drivers.kubernetes import (
            KubernetesDriver,
        )  # half a second that local runs do without
        from moorage_chaos.on_kubernetes import Options

        return KubernetesDriver(Options(**kubernetes).config(config, say))
    raise ValueError(f"there is no driver {kind!r}")
