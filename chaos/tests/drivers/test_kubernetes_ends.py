from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import Api, Where
from moorage_chaos.drivers.kubernetes_ends import ending
from moorage_chaos.drivers.kubernetes_pods import Pod

from .api_server import ApiServer

PODS = "/api/v1/namespaces/n/pods"


def body(ended: int | None = None, uid: str = "u") -> dict[str, Any]:
    state: dict[str, Any] = {"running": {}}
    if ended is not None:
        state = {"terminated": {"containerID": "containerd://c", "exitCode": ended, "reason": "Error"}}
    status = {"name": "redis", "containerID": "containerd://c", "state": state}
    metadata = {"name": "redis-0", "uid": uid, "creationTimestamp": "t", "resourceVersion": "2"}
    return {"metadata": metadata, "spec": {}, "status": {"containerStatuses": [status]}}


async def told(folder: Path, *events: tuple[str, dict[str, Any]]) -> tuple[int, str]:
    async with ApiServer().running() as server:
        server.answers[PODS] = {"metadata": {"resourceVersion": "1"}, "items": [body()]}
        server.watches.put_nowait([{"type": kind, "object": found} for kind, found in events])
        api = await Api.connect(Where(kubeconfig=server.kubeconfig(folder)))
        try:
            async with ending(api, PODS, "app=redis", Pod.of(body(), "redis"), 5.0) as end:
                return await end
        finally:
            await api.close()


async def test_what_is_told_for_a_moment_only_is_seen(tmp_path: Path) -> None:
    assert await told(tmp_path, ("MODIFIED", body(137)), ("DELETED", body())) == (137, "Error")


async def test_what_the_last_state_says_counts(tmp_path: Path) -> None:
    another = ("DELETED", body(0, uid="another"))
    assert await told(tmp_path, another, ("DELETED", body(137))) == (137, "Error")


async def test_a_pod_that_went_without_a_word_is_no_proof(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="did not tell"):
        await told(tmp_path, ("DELETED", body()))
