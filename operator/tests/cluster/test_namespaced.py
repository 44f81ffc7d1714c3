"""The component `namespaced`: an operator that has no right outside of the namespaces it watches."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .world import ROOT, Cluster, One

HOME, WATCHED, OTHER = "moorage-alone", "moorage-alone-watched", "moorage-alone-other"
"""Of the operator, of its objects, and one that is none of its business. The shipped names may be in use."""
ACCOUNT = f"system:serviceaccount:{HOME}:moorage-operator"
ELSEWHERE = (
    "another operator watches every namespace here: kubectl delete clusterrolebinding moorage-operator"
)


def overlay(folder: Path) -> list[dict[str, Any]]:
    """Base and component, as a user's own overlay has them, under names of our own."""
    for name in ("kustomize", "manifests"):
        shutil.copytree(ROOT / name, folder / name)
    own = folder / "kustomize" / "overlays" / "own"
    own.mkdir()
    body = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["../../base"],
        "components": ["../../components/namespaced"],
        "images": [
            {"name": "moorage-operator", "newName": "localhost/moorage-operator", "newTag": "dev"},
        ],
    }
    (own / "kustomization.yaml").write_text(yaml.safe_dump(body))
    text = Cluster("").kubectl("kustomize", str(own)).stdout
    documents = [document for document in yaml.safe_load_all(text) if document]
    crd = [document for document in documents if document["kind"] == "CustomResourceDefinition"]
    rest = json.dumps([document for document in documents if document not in crd])
    renamed = rest.replace('"moorage-system"', f'"{HOME}"').replace('"realtime"', f'"{WATCHED}"')
    return crd + list(json.loads(renamed))


@pytest.fixture(scope="module")
def system(crd: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(HOME)
    names = (HOME, WATCHED, OTHER)
    for name in names:
        cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=120s")
    for name in (WATCHED, OTHER):
        cluster.kubectl("create", "namespace", name)
    documents = overlay(tmp_path_factory.mktemp("overlay"))
    assert not {"ClusterRole", "ClusterRoleBinding"} & {document["kind"] for document in documents}
    everything = {"apiVersion": "v1", "kind": "List", "items": documents}
    Cluster("").kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", body=everything)
    cluster.kubectl("rollout", "status", "deployment/moorage-operator", "--timeout=90s")
    yield cluster
    for name in names:
        cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def other(system: Cluster) -> One:
    """Of a namespace that is not watched, and there before the watched one."""
    one = One(Cluster(OTHER), "chat")
    one.apply(replicas=1)
    return one


@pytest.fixture(scope="module")
def chat(system: Cluster, other: One) -> One:
    one = One(Cluster(WATCHED), "chat")
    one.apply(replicas=2)
    one.ready()
    return one


def objects(system: Cluster) -> set[tuple[str, str]]:
    """Namespace and name of every object that the operator has conditions of, as its metrics say."""
    pod = system.items("pods")[0]["metadata"]["name"]
    text = system.kubectl("get", "--raw", f"/api/v1/namespaces/{HOME}/pods/{pod}:8080/proxy/metrics").stdout
    found = re.findall(r'^moorage_operator_condition\{name="([^"]+)",namespace="([^"]+)"', text, re.MULTILINE)
    return {(namespace, name) for name, namespace in found}


def test_an_object_becomes_ready_with_the_role_of_its_namespace_alone(system: Cluster, chat: One) -> None:
    assert chat.body()["status"]["readyReplicas"] == 2
    system.until("it was this operator", lambda: (WATCHED, "chat") in objects(system))
    chat.patch(replicas=3, worker={"replicas": 1}, networkPolicy={"enabled": True})
    assert chat.ready()["status"]["readyReplicas"] == 3
    chat.cluster.kubectl("delete", "service", chat.name)
    chat.cluster.until("repaired", lambda: chat.child("service"))
    logs = system.kubectl("logs", "deployment/moorage-operator", "--tail=-1").stdout
    assert "orbidden" not in logs, logs
    assert chat.events("RollingOut"), "it may write Events, too"


def test_it_may_read_no_secret_elsewhere(system: Cluster, chat: One) -> None:
    def may(verb: str, what: str, namespace: str) -> bool:
        done = Cluster(namespace).kubectl("auth", "can-i", verb, what, f"--as={ACCOUNT}", check=False)
        assert done.stdout.strip() in ("yes", "no"), done.stderr
        return done.stdout.strip() == "yes"

    assert may("list", "secrets", WATCHED)
    for namespace in (OTHER, "kube-system", "default", HOME):
        assert not may("get", "secrets", namespace), namespace
        assert not may("list", "realtimeservers", namespace), namespace
    assert not may("list", "namespaces", OTHER)
    assert not may("create", "deployments", OTHER)


def test_an_object_of_another_namespace_is_left_alone(system: Cluster, chat: One, other: One) -> None:
    """The watched one, made later, has been served meanwhile."""
    known = objects(system)
    assert (WATCHED, "chat") in known
    assert OTHER not in {namespace for namespace, _ in known}
    if not system.get("clusterrolebinding", "moorage-operator"):
        # Else somebody's operator serves every namespace, and does what this one may not.
        assert "status" not in other.body()
        assert not other.cluster.items("deployments,services,secrets,statefulsets", *other.labels)


def test_a_deleted_object_leaves_nothing(system: Cluster) -> None:
    one = One(Cluster(WATCHED), "gone")
    one.apply(replicas=1, redis={"storage": {"retain": False}})
    one.ready()
    one.delete()
    kinds = "deployments,services,secrets,statefulsets,pvc,pods"
    one.cluster.until("everything gone", lambda: not one.cluster.items(kinds, *one.labels))
