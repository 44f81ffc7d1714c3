"""YAML in, YAML of the same name out. A change of `out` is a change that users see; of a pod template, a roll.

`MOORAGE_GOLDEN=write` writes `out` anew; read the diff before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

import moorage_operator
from moorage_operator.desired import children
from moorage_operator.desired.inputs import Inputs
from moorage_operator.plan import MANAGED, NONE, Plan, Render, Scale, Step
from moorage_operator.resource import Resource, parse

from ..schema import defaulted

FOLDER = Path(__file__).parents[1] / "yaml"
NAMES = sorted(path.stem for path in (FOLDER / "in").glob("*.yaml"))


def load(name: str) -> Resource:
    return parse(defaulted(yaml.safe_load((FOLDER / "in" / f"{name}.yaml").read_text())))


def inputs(resource: Resource) -> Inputs:
    auth = resource.spec.redis.mode == "Managed" and resource.spec.redis.auth.enabled
    return Inputs("0123456789abcdef", 'p@ss "word"/1' if auth else None, None, 6380)


def settled(resource: Resource) -> Plan:
    backend = {"Managed": MANAGED, "Disabled": NONE, "External": "external:abc"}[resource.spec.redis.mode]
    render = Render(backend, resource.wanted, recreate=backend == NONE)
    return Plan(Step.SETTLED, render, backend == MANAGED)


def rendered(name: str) -> list[dict[str, Any]]:
    resource = load(name)
    return children(resource, settled(resource), inputs(resource))


class Plain(yaml.SafeDumper):
    """Without anchors: every object is to be read alone."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    text = yaml.dump_all(rendered(name), Dumper=Plain, sort_keys=True, width=110)
    path = FOLDER / "out" / f"{name}.yaml"
    if os.environ.get("MOORAGE_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def kinds(objects: list[dict[str, Any]]) -> list[str]:
    return [f"{o['kind']}/{o['metadata']['name']}" for o in objects]


def test_every_object_is_owned_and_labelled() -> None:
    for name in NAMES:
        for child in rendered(name):
            owner = child["metadata"]["ownerReferences"][0]
            assert (owner["kind"], owner["name"], owner["controller"]) == ("RealtimeServer", "chat", True)
            assert child["metadata"]["labels"]["app.kubernetes.io/instance"] == "chat"


def test_no_budget_at_one_replica_and_none_on_redis() -> None:
    assert "PodDisruptionBudget/chat" in kinds(rendered("minimal"))
    for name in ("one-replica", "disabled", "no-metrics"):
        assert not [k for k in kinds(rendered(name)) if k.startswith("PodDisruptionBudget")]


def test_without_redis_the_strategy_is_recreate_and_the_url_is_empty() -> None:
    deployment = next(o for o in rendered("disabled") if o["kind"] == "Deployment")
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert deployment["spec"]["replicas"] == 1
    env = {e["name"]: e for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert env["REDIS_URL"] == {"name": "REDIS_URL", "value": ""}


def test_while_it_only_scales_no_deployment_is_written_and_the_budget_follows() -> None:
    resource = load("everything")
    plan = Plan(Step.SCALING_DOWN, Scale(1), True)
    names = kinds(children(resource, plan, inputs(resource)))
    assert not [n for n in names if n.startswith(("Deployment", "PodDisruptionBudget"))]
    assert "StatefulSet/chat-redis" in names


def test_the_grace_is_the_sum_of_its_parts_rounded_up() -> None:
    def grace(name: str) -> int:
        deployment = next(o for o in rendered(name) if o["kind"] == "Deployment")
        seconds = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        assert isinstance(seconds, int)
        return seconds

    assert grace("minimal") == 5 + 20 + 5
    assert grace("everything") == 0 + 2 + 5


def test_another_operator_version_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    before = rendered("everything")
    monkeypatch.setattr(moorage_operator, "__version__", "9.9.9")
    assert rendered("everything") == before


def test_no_secret_stands_in_a_pod_template() -> None:
    for name in NAMES:
        for child in rendered(name):
            if child["kind"] in ("Deployment", "StatefulSet", "ConfigMap"):
                assert "word" not in yaml.safe_dump(child).replace("-redis-password", "").replace(
                    "password", ""
                )
