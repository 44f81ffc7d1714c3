"""The operator's pages and the operator's code name the same reasons; examples of the plugin are right."""

from __future__ import annotations

import ast
import re
import shlex

import pytest
import yaml

from moorage_operator.kubectl.cluster import KINDS
from moorage_operator.kubectl.help import parser
from moorage_operator.plan import Step

from ..schema import ROOT

DOCS = ROOT / "docs" / "operator"
PACKAGE = ROOT / "operator" / "moorage_operator"
CONDITIONS = {
    "Ready": "ready",
    "Available": "available",
    "Progressing": "progressing",
    "Degraded": "degraded",
    "RedisReady": "redis-ready",
    "ConfigurationWarning": "configuration-warning",
}
NO_REASONS = {
    *KINDS, *CONDITIONS, "True", "False", "Unknown", "Normal", "Warning", "Auto",
    "Managed", "Disabled", "External", "Switching", "Clustered", "SingleReplica", "RedisUrl", "Recreate",
}  # fmt: skip
"""Other words of that shape in the code. A new word is a reason until it is named here: none is forgotten."""
WORD = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]+)*")
REFERENCED = ("Secret", "ConfigMap")
ROW = re.compile(r"^\| `([A-Z]\w+)` \|", re.MULTILINE)


def reasons() -> set[str]:
    """Every string of the modules that make conditions and Events that has the shape of a reason."""
    found = {step.value for step in Step}
    for name in ("status.py", "reconcile.py", "gather.py"):
        for node in ast.walk(ast.parse((PACKAGE / name).read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and WORD.fullmatch(node.value):
                found.add(node.value)
            if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
                first, last = node.values
                # f"{reference.kind}NotFound"
                if isinstance(first, ast.FormattedValue) and isinstance(last, ast.Constant):
                    found |= {f"{kind}{last.value}" for kind in REFERENCED if WORD.fullmatch(str(last.value))}
    return found - NO_REASONS - {"NotFound", "KeyNotFound"}


def rows(page: str) -> set[str]:
    """Reasons in the first column of a condition's page."""
    return set(ROW.findall((DOCS / "conditions" / f"{page}.md").read_text()))


EVERY_ROW = set().union(*(rows(page) for page in CONDITIONS.values()))


@pytest.mark.parametrize("reason", sorted(reasons()))
def test_every_reason_has_a_row_that_says_what_to_do(reason: str) -> None:
    assert reason in EVERY_ROW, f"document {reason} in docs/operator/conditions/, or name it in NO_REASONS"


def test_the_pages_explain_no_reason_that_does_not_exist() -> None:
    assert EVERY_ROW - reasons() == set()


def test_every_step_is_on_the_page_of_progressing_and_nothing_else() -> None:
    assert rows("progressing") == {step.value for step in Step}


@pytest.mark.parametrize(
    ("reason", "page"),
    [
        ("SecretKeyNotFound", "degraded"),
        ("ConfigMapNotFound", "degraded"),
        ("PodsFailing", "degraded"),
        ("PodsRefused", "degraded"),
        ("Answering", "redis-ready"),
        ("StorageNotExpandable", "configuration-warning"),
        ("SingleReplicaWithoutRedis", "available"),
        ("AllReplicasReady", "ready"),
    ],
)
def test_a_reason_stands_on_the_page_of_its_condition(reason: str, page: str) -> None:
    assert reason in rows(page)


def granted() -> set[tuple[str, str]]:
    """(resource, verb) of the operator's roles."""
    found = set()
    for document in yaml.safe_load_all((ROOT / "manifests" / "02-rbac.yaml").read_text()):
        for rule in document.get("rules") or []:
            found |= {(resource, verb) for resource in rule["resources"] for verb in rule["verbs"]}
    return found


def test_every_right_of_the_operator_is_listed_with_its_reason_and_no_other() -> None:
    table = (DOCS / "rbac.md").read_text().split("\n## ", 1)[0]
    listed = set()
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) == 3 and cells[0].startswith("`"):
            assert len(cells[2]) > 10, line
            verbs = re.findall(r"\b(?:get|list|watch|create|update|patch|delete)\b", cells[1])
            listed |= {(resource, verb) for resource in re.findall(r"`([^`]+)`", cells[0]) for verb in verbs}
    assert listed == granted()


def test_every_page_is_reached_from_the_index() -> None:
    index = (DOCS / "index.md").read_text()
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"index.md"}
    assert {page for page in pages if f"({page})" not in index} == set()


def commands() -> list[str]:
    """Each `kubectl moorage …` of the pages, without what follows a pipe, a comment or a redirection."""
    found = set()
    for page in DOCS.rglob("*.md"):
        for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL):
            found |= set(re.findall(r"kubectl (moorage [^#|>;&\n]+)", block))
        found |= set(re.findall(r"`kubectl (moorage [^`|]+)`", page.read_text()))
    return sorted(command.split("  ")[0].strip() for command in found)


@pytest.mark.parametrize("command", commands())
def test_commands_in_the_pages_can_be_typed(command: str) -> None:
    words = shlex.split(command)[1:]
    if words[0] == "COMMAND" or words == ["--help"]:
        return
    assert parser("0").parse_args(words).command == words[0]


def test_there_are_commands() -> None:
    assert len(commands()) > 10
