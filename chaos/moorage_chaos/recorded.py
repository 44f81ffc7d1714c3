"""The server's command line in the harness's image: as the product's, but workers are under record, and a mutant runs
where ``MOORAGE_CHAOS_MUTANT`` names one."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """What ``moorage ARGV`` would do, seen."""
    mutant = os.environ.get("MOORAGE_CHAOS_MUTANT") or None
    if list(argv[:1]) == ["worker"]:
        from moorage_chaos import worker

        # The name of the pod, by which the driver knows the worker; its journal tells workers apart by it.
        os.environ.setdefault("MOORAGE_REPLICA_ID", socket.gethostname())
        return worker.run(mutant)
    if mutant and list(argv[:1]) == ["serve"]:
        from moorage_chaos import mutants

        return mutants.run(mutant, list(argv))
    from moorage.cli import main as moorage

    return moorage(list(argv))
