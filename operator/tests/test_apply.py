"""What may be taken out of a child that others have changed; the writing itself is shown on the real cluster."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from moorage_operator.apply import excess

from .desired.test_golden import rendered


def child(kind: str) -> dict[str, Any]:
    return next(copy.deepcopy(o) for o in rendered("minimal") if o["kind"] == kind)


@pytest.mark.parametrize("kind", ["Service", "Deployment", "PodDisruptionBudget", "ConfigMap"])
def test_nothing_to_take_out_of_what_was_just_written(kind: str) -> None:
    assert excess(child(kind), child(kind)) is None


def test_additions_of_others_stay() -> None:
    written = child("Deployment")
    template = written["spec"]["template"]
    template["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = "now"
    template["spec"]["containers"][0]["env"].append({"name": "THEIRS", "value": "x"})
    template["spec"]["containers"].append({"name": "sidecar", "image": "x"})
    assert excess(child("Deployment"), written) is None


def test_a_reserved_variable_cannot_be_overridden_by_a_source() -> None:
    written = child("Deployment")
    container = written["spec"]["template"]["spec"]["containers"][0]
    state = next(e for e in container["env"] if e["name"] == "STATE_URL")
    state["valueFrom"] = {"fieldRef": {"fieldPath": "metadata.name"}}
    patch = excess(child("Deployment"), written)
    assert patch == {
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"name": "server", "env": [{"name": "STATE_URL", "valueFrom": None}]}]
                }
            }
        }
    }


def test_selectors_are_ours_alone() -> None:
    service = child("Service")
    service["spec"]["selector"]["theirs"] = "x"
    assert excess(child("Service"), service) == {"spec": {"selector": {"theirs": None}}}
    budget = child("PodDisruptionBudget")
    budget["spec"]["selector"]["matchLabels"]["theirs"] = "x"
    assert excess(child("PodDisruptionBudget"), budget) == {
        "spec": {"selector": {"matchLabels": {"theirs": None}}}
    }
