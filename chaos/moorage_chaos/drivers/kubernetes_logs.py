"""What containers print, followed from their start into files of the report: with a pod its log is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp

from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import Api
from moorage_chaos.drivers.kubernetes_pods import Pod, replica_id

AGAIN_S = 0.2
STALLED = b"this process stalled"
"""What a replica prints that did not run for longer than others wait for its beats: on a machine without CPU to give it
this happens without any fault of ours."""


class Logs:
    """Follows one log per container. ``introduced(pod, container, replica id)`` is called when a server says who it
    is, ``stalled(pod, t_ns)`` when one says that it did not run for a while."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        folder: Path,
        introduced: Callable[[Pod, str, str], None],
        stalled: Callable[[Pod, int], None],
    ) -> None:
        self._api, self._namespace, self._folder = api, namespace, folder
        self._introduced = introduced
        self._stalled = stalled
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.files: dict[str, Path] = {}
        """Container id -> its file."""

    def follow(self, pod: Pod, name: str) -> None:
        """Begin with a container that runs; once each. ``name`` is the file's, without ``.log``."""
        if pod.container and pod.container not in self._tasks:
            path = self.files[pod.container] = self._folder / f"{name}.log"
            self._tasks[pod.container] = asyncio.create_task(self._copy(pod, pod.container, path))

    async def _copy(self, pod: Pod, container: str, path: Path) -> None:
        known = False
        with path.open("ab") as file:
            while True:
                fresh = True
                try:
                    async for line in self._api.lines(
                        f"/api/v1/namespaces/{self._namespace}/pods/{pod.name}/log",
                        {"container": pod.main, "follow": "true"},
                    ):
                        if fresh:  # not before: what a dead container printed cannot be had again
                            file.truncate(0)
                            fresh = False
                        file.write(line + b"\n")
                        file.flush()
                        if STALLED in line:
                            self._stalled(pod, time.monotonic_ns())
                        if not known and (replica := replica_id(line.decode(errors="replace"))):
                            known = True
                            self._introduced(pod, container, replica)
                    if not fresh and (known or pod.going or pod.main != "server"):
                        return
                    if pod.container != container:
                        return
                except (DriverError, TimeoutError, OSError, aiohttp.ClientError, ValueError):
                    if pod.going or pod.container != container:
                        return
                # The container is being made, or the stream was lost: from the start again.
                await asyncio.sleep(AGAIN_S)

    async def finished(self, container: str, bound_s: float = 5.0) -> None:
        """Wait until all that a container printed is in its file; a log that does not end is left as it is."""
        task = self._tasks.get(container)
        if task is not None:
            await asyncio.wait({task}, timeout=bound_s)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self._tasks.clear()
