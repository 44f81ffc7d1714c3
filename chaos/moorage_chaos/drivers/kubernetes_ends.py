"""How a container that is being killed ended: kubelet tells it for some milliseconds before the pod is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import Api
from moorage_chaos.drivers.kubernetes_pods import Pod


@asynccontextmanager
async def ending(
    api: Api, path: str, labels: str, pod: Pod, bound_s: float
) -> AsyncIterator[asyncio.Task[tuple[int, str]]]:
    """Watched from here on: ``await`` what is given, after having killed ``pod`` and had it deleted, for the exit code
    and reason of its container. It raises DriverError. ``path`` and ``labels`` are those of its collection."""
    task = asyncio.create_task(_end_of(api, path, labels, pod, bound_s))
    try:
        yield task
    finally:
        task.cancel()


async def _end_of(api: Api, path: str, labels: str, pod: Pod, bound_s: float) -> tuple[int, str]:
    code: tuple[int, str] | None = None
    try:
        async with asyncio.timeout(bound_s):
            async for kind, body in api.watch(path, labels):
                found = [one for one in body.get("items", [body]) if one["metadata"]["uid"] == pod.uid]
                for one in found:
                    code = Pod.of(one, pod.main).ended.get(pod.container, code)
                if (kind == "DELETED" and found) or (kind == "LISTED" and not found):
                    break
    except TimeoutError as error:
        raise DriverError(f"{pod.name} did not go within {bound_s:g} s") from error
    if code is None:
        raise DriverError(f"kubelet did not tell how {pod.name} ended")
    return code
