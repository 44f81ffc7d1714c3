"""What is applied: the shipped manifests with the images that were built, and a sample that the operator accepts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage_chaos.deploy import system
from moorage_chaos.deploy.commands import ROOT
from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import Api, Where

from ..drivers.api_server import ApiServer


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer().running() as server:
        yield server


@pytest.fixture
async def api(server: ApiServer, tmp_path: Path) -> AsyncIterator[Api]:
    api = await Api.connect(Where(kubeconfig=server.kubeconfig(tmp_path)))
    yield api
    await api.close()


def test_the_operator_is_the_shipped_one_with_another_image() -> None:
    found = system.operator_objects("mine:1")
    assert [body["kind"] for body in found][:2] == ["CustomResourceDefinition", "Namespace"]
    (deployment,) = [body for body in found if body["kind"] == "Deployment"]
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "mine:1"


def test_the_helper_is_privileged_and_has_no_rights_in_the_api() -> None:
    found = {body["kind"]: body for body in system.helper_objects("mine:1")}
    assert set(found) == {"Namespace", "ServiceAccount", "DaemonSet"}, "no role: it asks the API nothing"
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["hostPID"] is True
    assert pod["containers"][0]["securityContext"]["privileged"] is True
    assert "ports" not in pod["containers"][0]
    assert {body["metadata"].get("namespace", "moorage-chaos") for body in found.values()} == {
        "moorage-chaos"
    }


def test_the_sample_has_fields_of_the_crd() -> None:
    (crd,) = [b for b in system.operator_objects("x") if b["kind"] == "CustomResourceDefinition"]
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    _, body = system.sample("n", "chat", "server:1", "redis:1")
    assert set(body["spec"]) <= set(schema)
    assert body["spec"]["redis"] == {"image": "redis:1"}


def test_the_job_asks_for_no_right_that_is_wild() -> None:
    """And for every kind that rows and driver look at."""
    rules = [
        rule
        for body in yaml.safe_load_all((ROOT / "kustomize" / "overlays" / "ci" / "rbac.yaml").read_text())
        for rule in body.get("rules") or []
    ]
    assert not any("*" in rule["verbs"] + rule["resources"] + rule["apiGroups"] for rule in rules)
    resources = {resource for rule in rules for resource in rule["resources"]}
    from moorage_chaos.cluster import PLURALS

    assert {path.rsplit("/", 1)[-1] for path in PLURALS.values()} <= resources


async def test_objects_are_applied_where_the_api_server_says(server: ApiServer, api: Api) -> None:
    server.answers["/apis/apps/v1"] = {
        "resources": [{"name": "deployments", "kind": "Deployment", "namespaced": True}]
    }
    server.answers["/api/v1"] = {
        "resources": [{"name": "namespaces", "kind": "Namespace", "namespaced": False}]
    }
    deployments = "/apis/apps/v1/namespaces/n/deployments/d"
    for path in (deployments, "/api/v1/namespaces/n"):
        server.answers[path] = {}
    bodies: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d", "namespace": "n"}},
    ]
    await system.Applier(api).apply(bodies)
    patched = [path for method, path, _ in server.asked if method == "PATCH"]
    assert patched == ["/api/v1/namespaces/n", deployments]


async def test_a_roll_out_that_does_not_end_is_an_error(server: ApiServer, api: Api) -> None:
    path = "/apis/apps/v1/namespaces/n/deployments/d"
    body = {"kind": "Deployment", "metadata": {"generation": 2}, "spec": {"replicas": 1}, "status": {}}
    server.answers[path] = body
    with pytest.raises(DriverError, match="rolled out"):
        await system.rolled_out(api, path, 0.0)
    status = {"observedGeneration": 2, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}
    server.answers[path] = {**body, "status": status}
    await system.rolled_out(api, path, 5.0)


async def test_an_image_counts_as_loaded_when_every_node_has_it(server: ApiServer, api: Api) -> None:
    def node(*names: str) -> dict[str, Any]:
        return {"status": {"images": [{"names": [name]} for name in names]}}

    server.answers["/api/v1/nodes"] = {"items": [node("a", "b"), node("b", "c")]}
    assert await system.loaded(api) == {"b"}
