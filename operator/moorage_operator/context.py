"""What one pass and the next share: per object a small memory, for all objects the tools. Losing it only costs
requests."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from moorage_operator.api import Api
from moorage_operator.desired.inputs import Inputs
from moorage_operator.metrics import Metrics
from moorage_operator.pods import Pods
from moorage_operator.store import Store


@dataclass(slots=True)
class Memory:
    """Of one object, by uid."""

    uid: str
    applied: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """(kind, name) → digests of what was wanted and of what it became"""
    repairs: dict[tuple[str, str], deque[float]] = field(default_factory=dict)
    """(kind, name) → when [s, loop time] the same intent was written again"""
    inputs: tuple[object, Inputs] | None = None
    """versions of everything referenced → what was read of it"""
    target: str | None = None
    """Backend that the inputs name."""
    served: bool = False
    """A Deployment was seen: what is missing now was deleted by somebody."""
    draining: dict[str, int] = field(default_factory=dict)
    """pod → open connections when it began to go"""
    made_secrets: set[str] = field(default_factory=set)
    """Generated Secrets that were there before: a missing one was deleted by somebody."""
    storage_refused: tuple[str, str] | None = None
    """(size, why) of a claim that could not grow"""
    storage_grown: str = ""
    """Size that the claim was last asked to have."""


@dataclass(slots=True)
class Context:
    """The tools, and the memories."""

    api: Api
    store: Store
    pods: Pods
    metrics: Metrics
    operator_namespace: str
    instance: str
    """Name of this operator process, in Events."""
    memories: dict[tuple[str, str], Memory] = field(default_factory=dict)

    def memory(self, namespace: str, name: str, uid: str) -> Memory:
        """The memory of an object; a namesake made anew starts without one."""
        known = self.memories.get((namespace, name))
        if known is None or known.uid != uid:
            known = self.memories[namespace, name] = Memory(uid)
        return known

    def forget(self, namespace: str, name: str) -> None:
        self.memories.pop((namespace, name), None)
