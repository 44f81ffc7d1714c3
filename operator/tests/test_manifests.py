"""Everything that a user applies: renders, fits Kubernetes' own schemas, and grants what the operator does, no more."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage_operator.api import PLURALS
from moorage_operator.reconcile import REMOVABLE
from moorage_operator.resource import KIND, parse
from moorage_operator.watching import CHILD_KINDS, OPTIONAL_KINDS

from .schema import ROOT, defaulted, kubectl

MANIFESTS, KUSTOMIZE = ROOT / "manifests", ROOT / "kustomize"
OVERLAYS = sorted(path.name for path in (KUSTOMIZE / "overlays").iterdir())
COMPONENTS = sorted(path.name for path in (KUSTOMIZE / "components").iterdir())
FOREIGN = {"ServiceMonitor", "PodMonitor"}
"""Kinds whose schema is not Kubernetes' own."""
VERSIONS = ("1.30", "1.34")
NO_KUBECTL = "kubectl is not on PATH (make cluster compiles one)"


def documents(text: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(text) if document]


def check(document: dict[str, Any], version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    kind = document["kind"]
    if kind == KIND:
        parse(defaulted(document))
    elif kind not in FOREIGN:
        validate.validate(document, version, strict=True)


def render(folder: Path) -> list[dict[str, Any]]:
    if not kubectl():
        pytest.skip(NO_KUBECTL)
    done = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return documents(done.stdout)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", sorted(MANIFESTS.glob("*.yaml")), ids=lambda path: path.name)
def test_manifests_fit_the_schema(path: Path, version: str) -> None:
    for document in documents(path.read_text()):
        if (
            document["kind"] != "CustomResourceDefinition"
        ):  # its schema is recursive; the real cluster judges it
            check(document, version)


@pytest.mark.parametrize("path", sorted((MANIFESTS / "samples").glob("*.yaml")), ids=lambda path: path.name)
def test_samples_are_good(path: Path) -> None:
    for document in documents(path.read_text()):
        check(document, VERSIONS[0])


def test_the_sample_of_every_field_is_complete_and_says_the_defaults() -> None:
    (sample,) = documents((MANIFESTS / "samples" / "every-field.yaml").read_text())
    least = {**sample, "spec": {"image": sample["spec"]["image"]}}
    assert parse(defaulted(sample)) == parse(defaulted(least))
    assert set(sample["spec"]) == set(parse(defaulted(least)).spec.model_dump(by_alias=True))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parent / "yaml" / "out").glob("*.yaml")), ids=lambda p: p.stem
)
def test_children_fit_the_schema(path: Path, version: str) -> None:
    for document in documents(path.read_text()):
        check(document, version)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlays_render_and_fit(overlay: str) -> None:
    rendered = render(KUSTOMIZE / "overlays" / overlay)
    kinds = [document["kind"] for document in rendered]
    assert KIND in kinds
    assert "Deployment" in kinds
    for document in rendered:
        if document["kind"] != "CustomResourceDefinition":
            check(document, VERSIONS[0])


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_component_works_alone(component: str, tmp_path: Path) -> None:
    """On a copy, since kustomize loads nothing from outside of a folder's tree."""
    for name in ("kustomize", "manifests"):
        shutil.copytree(ROOT / name, tmp_path / name)
    folder = tmp_path / "kustomize" / "overlays" / "one"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kustomize.config.k8s.io/v1beta1",
                "kind": "Kustomization",
                "resources": ["../../base", "../../../manifests/samples-one"],
                "components": [f"../../components/{component}"],
            }
        )
    )
    samples = tmp_path / "manifests" / "samples-one"
    samples.mkdir()
    shutil.copy(MANIFESTS / "samples" / "minimal.yaml", samples)
    (samples / "kustomization.yaml").write_text("resources: [minimal.yaml]\n")
    plain = render(KUSTOMIZE / "base") + documents((MANIFESTS / "samples" / "minimal.yaml").read_text())
    rendered = render(folder)
    for document in rendered:
        if document["kind"] != "CustomResourceDefinition":
            check(document, VERSIONS[0])
    assert [d for d in rendered if d not in plain], "the component changes nothing"


def rules() -> dict[tuple[str, str], set[str]]:
    granted: dict[tuple[str, str], set[str]] = {}
    for document in documents((MANIFESTS / "02-rbac.yaml").read_text()):
        for rule in document.get("rules") or []:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    granted.setdefault((group, resource), set()).update(rule["verbs"])
    return granted


def test_the_role_grants_what_is_done_and_nothing_wild() -> None:
    granted = rules()
    for kind in {*CHILD_KINDS, *OPTIONAL_KINDS, "Secret", "ConfigMap", KIND}:
        version, plural = PLURALS[kind]
        verbs = granted[version.rpartition("/")[0], plural]
        assert {"get", "list", "watch"} <= verbs, kind
        if kind in REMOVABLE or kind == "Secret":
            assert {"create", "patch", "delete"} <= verbs, kind
    assert not any("*" in (*key, *verbs) for key, verbs in granted.items())
    assert not {resource for _, resource in granted if resource in ("pods/exec", "pods/proxy", "roles")}


def test_the_role_of_single_namespaces_is_the_same_without_the_cluster() -> None:
    text = (KUSTOMIZE / "components" / "namespaced" / "rbac.yaml").read_text()
    role = next(d for d in documents(text) if d["kind"] == "Role")
    cluster = next(
        d for d in documents((MANIFESTS / "02-rbac.yaml").read_text()) if d["kind"] == "ClusterRole"
    )
    alone = {"namespaces", "customresourcedefinitions"}
    wanted = [rule for rule in cluster["rules"] if not alone & set(rule["resources"])]
    assert role["rules"] == wanted
