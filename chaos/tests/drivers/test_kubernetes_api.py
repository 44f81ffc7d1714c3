"""The way to the API server, over a stand-in: errors, lost watches, sessions of node helpers, port-forwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import Api, ApiError, Where
from moorage_chaos.drivers.kubernetes_forward import Forward
from moorage_chaos.drivers.kubernetes_nodes import NAMESPACE, Nodes

from .api_server import ApiServer

PODS = "/api/v1/namespaces/n/pods"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as server:
        yield server


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncIterator[Api]:
    api = await Api.connect(Where(kubeconfig=server.kubeconfig(tmp_path)))
    yield api
    await api.close()


async def test_no_cluster_is_said(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="no way"):
        await Api.connect(Where(kubeconfig=str(tmp_path / "absent")))


async def test_what_the_api_server_says_is_the_error(server: ApiServer, api: Api) -> None:
    server.answers[PODS] = (409, {"message": "too late"})
    with pytest.raises(ApiError, match="too late") as caught:
        await api.get(PODS)
    assert caught.value.status == 409


async def test_only_a_404_is_an_absence(server: ApiServer, api: Api) -> None:
    assert await api.find(f"{PODS}/x") is None
    server.answers[f"{PODS}/x"] = (503, {"message": "busy"})
    with pytest.raises(ApiError):
        await api.find(f"{PODS}/x")


async def test_deleting_what_is_gone_is_no_error(server: ApiServer, api: Api) -> None:
    await api.delete(f"{PODS}/x", grace_s=1, uid="u")
    method, path, body = server.asked[-1]
    assert (method, path) == ("DELETE", f"{PODS}/x")
    assert body["gracePeriodSeconds"] == 1
    assert body["preconditions"] == {"uid": "u"}


def pod(name: str, version: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": version}}


async def test_a_watch_goes_on_after_its_end_and_lists_again_after_an_error(
    server: ApiServer, api: Api
) -> None:
    server.answers[PODS] = {"metadata": {"resourceVersion": "1"}, "items": [pod("a", "1")]}
    server.watches.put_nowait(
        [{"type": "ADDED", "object": pod("b", "2")}, {"type": "BOOKMARK", "object": pod("", "3")}]
    )
    server.watches.put_nowait([{"type": "ERROR", "object": {"code": 410, "message": "expired"}}])
    server.watches.put_nowait([{"type": "DELETED", "object": pod("b", "4")}])
    seen = []
    async with asyncio.timeout(10):
        async for kind, body in api.watch(PODS):
            seen.append((kind, body.get("metadata", {}).get("name")))
            if kind == "DELETED":
                break
    assert seen == [("LISTED", None), ("ADDED", "b"), ("LISTED", None), ("DELETED", "b")]


@pytest.fixture
def helper(server: ApiServer) -> None:
    """Node `n1` has a running helper."""
    body = {"metadata": {"name": "helper-1"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}
    server.answers[f"/api/v1/namespaces/{NAMESPACE}/pods"] = {"items": [body]}


@pytest.mark.usefixtures("helper")
async def test_a_session_speaks_to_the_real_helper(api: Api) -> None:
    nodes = Nodes(api)
    try:
        session = await nodes.session("n1")
        assert session.offset_ns == 0, "one machine, one clock"
        assert await nodes.session("n1") is session
        with pytest.raises(DriverError, match="no process"):
            await session.request("signal", pod="nobody", container="c" * 64, number=9)
    finally:
        await nodes.close()


@pytest.mark.usefixtures("helper")
async def test_a_session_that_broke_is_opened_anew(api: Api) -> None:
    nodes = Nodes(api)
    try:
        session = await nodes.session("n1")
        await session.close()
        with pytest.raises(DriverError, match="gone"):
            await session.request("ping")
        again = await nodes.session("n1")
        assert again is not session
        assert "t" in await again.request("ping")
    finally:
        await nodes.close()


@pytest.mark.usefixtures("helper")
async def test_a_node_without_helper_says_how_to_get_one(api: Api) -> None:
    with pytest.raises(DriverError, match="--deploy"):
        await Nodes(api).session("n2")


async def test_a_forward_leads_to_the_pod_and_ends_with_it(server: ApiServer, api: Api) -> None:
    forward = Forward(api, "n", 3005)
    await forward.open()
    try:
        forward.pod = "p1"
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
        writer.write(b"hello")
        async with asyncio.timeout(5):
            assert await reader.readexactly(5) == b"HELLO"
        assert server.asked[-1][1] == "/api/v1/namespaces/n/pods/p1/portforward"
        writer.close()
    finally:
        await forward.close()
