"""Records which pods of an object serve, and with which Redis, at every change."""

from __future__ import annotations

import asyncio
from types import TracebackType

from moorage_chaos.cluster import Own
from moorage_chaos.history import History

BACKEND = "moorage.dev/backend"
"""Annotation of a pod: what it was started with; empty is no Redis."""


class Recorder:
    """Notes ``serving`` ``{"backends": [...]}`` of all pods that are Ready and not going."""

    def __init__(self, own: Own, history: History) -> None:
        self._own, self._history = own, history
        self._task: asyncio.Task[None] | None = None
        self._listed = asyncio.Event()

    async def __aenter__(self) -> Recorder:
        self._task = asyncio.create_task(self._record())
        async with asyncio.timeout(10):
            await self._listed.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _record(self) -> None:
        label = f"app.kubernetes.io/instance={self._own.name},app.kubernetes.io/component=server"
        serving: dict[str, str] = {}
        async for kind, body in self._own.api.watch(self._own.path("Pod"), label):
            items = body.get("items") or [] if kind == "LISTED" else [body]
            if kind == "LISTED":
                serving.clear()
            for pod in items:
                metadata = pod["metadata"]
                conditions = {
                    c["type"]: c["status"] for c in (pod.get("status") or {}).get("conditions") or []
                }
                serving.pop(metadata["uid"], None)
                if (
                    kind != "DELETED"
                    and conditions.get("Ready") == "True"
                    and not metadata.get("deletionTimestamp")
                ):
                    serving[metadata["uid"]] = (metadata.get("annotations") or {}).get(BACKEND, "")
            self._history.note("serving", backends=sorted(serving.values()))
            self._listed.set()
