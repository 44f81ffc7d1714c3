"""The server's command line in the harness's image: as the product's, but workers are under record, and a mutant runs
where ``MOORAGE_CHAOS_MUTANT`` names one."""

from __future__ import annotations

import os
from collections.abc import Sequence


def main(argv: Sequence[str]) -> int:
    """What ``moorage ARGV`` would do, seen."""
    mutant = os.environ.get("MOORAGE_CHAOS_MUTANT") or None
    if list(argv[:1]) == ["worker"]:
        from moorage_chaos import worker

        return worker.run(mutant)
    if mutant and list(argv[:1]) == ["serve"]:
        from moorage_chaos import mutants

        return mutants.run(mutant, list(argv))
    from moorage.cli import main as moorage

    return moorage(list(argv))
