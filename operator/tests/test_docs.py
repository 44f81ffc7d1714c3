"""The pages say what the code does: every reason is explained, the reference is the CRD, links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from moorage_operator.plan import Step

from .schema import ROOT

DOCS = ROOT / "docs" / "operator"
PACKAGE = ROOT / "operator" / "moorage_operator"
PAGES = sorted(DOCS.rglob("*.md"))


def reasons() -> set[str]:
    """Every CamelCase word that stands alone in quotes in the modules that make conditions and Events."""
    found = {str(step) for step in Step}
    kinds = {"Ready", "Available", "Progressing", "Degraded", "RedisReady", "ConfigurationWarning"}
    for name in ("status.py", "reconcile.py", "gather.py"):
        text = (PACKAGE / name).read_text()
        found |= set(re.findall(r'"((?:[A-Z][a-z]+){2,})"', text)) - kinds
    kubernetes = {
        "Deployment", "StatefulSet", "ServiceAccount", "ConfigMap", "PodDisruptionBudget", "NetworkPolicy",
        "HorizontalPodAutoscaler", "ServiceMonitor", "PersistentVolumeClaim", "SingleReplica", "RedisUrl",
    }  # fmt: skip
    return found - kubernetes


def test_every_reason_is_explained() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    assert len(reasons()) > 25
    missing = sorted(reason for reason in reasons() if f"`{reason}`" not in text)
    assert not missing, missing


def test_every_condition_has_a_page() -> None:
    for name in ("ready", "available", "progressing", "degraded", "redis-ready", "configuration-warning"):
        assert (DOCS / "conditions" / f"{name}.md").exists()


def test_the_reference_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "operator" / "reference.py"), "--check"]
    assert subprocess.run(command, timeout=30).returncode == 0, "run `make docs-operator`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target
