"""A harness that does not do what it says."""

from __future__ import annotations

from typing import Any

from moorage_chaos.mutants.registry import mutant, replace


@mutant("ignore-fault", "no fault is done, though each is recorded as done", "client")
def ignore_fault() -> None:
    from moorage_chaos.drivers.base import Evidence
    from moorage_chaos.faults.base import Faults

    async def inject(self: Any, fault: Any) -> Evidence:
        operation = self._history.begin("fault", kind=fault.kind, replica=fault.target)
        evidence = Evidence(operation.event.t, fault.kind, fault.target)
        operation.ok(**evidence.as_value())
        return evidence

    replace(Faults, "inject", inject)
