from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage_operator.errors import SpecError
from moorage_operator.resource import RESERVED_ENV, parse

from .schema import defaulted, merged, minimal, schema

BAD: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "bad_specs.yaml").read_text())


@pytest.mark.parametrize("case", [b for b in BAD if b.get("only") != "cluster"], ids=lambda b: b["case"])
def test_a_bad_spec_is_refused_by_name(case: dict[str, Any]) -> None:
    body = merged(minimal(), {"spec": case.get("spec", {})})
    body["metadata"]["name"] = case.get("name", "chat")
    if drop := case.get("drop"):
        del body["spec"][drop]
    with pytest.raises(SpecError) as error:
        parse(defaulted(body))
    wanted = case["field"].removeprefix("metadata.")
    assert wanted in str(error.value)
    assert case.get("contains", "") in str(error.value)


def test_the_smallest_object_gets_every_default() -> None:
    resource = parse(defaulted(minimal()))
    assert (resource.spec.replicas, resource.spec.redis.mode, resource.spec.rollout.max_surge) == (
        3,
        "Managed",
        2,
    )
    assert resource.spec.probes.startup.failure_threshold == 60
    assert resource.wanted == 3
    assert resource.endpoint == "chat.realtime.svc:3000"


def test_nulls_are_as_good_as_absent() -> None:
    nulls = {
        "secretKeyRef": None,
        "autoscaling": None,
        "service": {"nodePort": None},
        "redis": {"external": None},
    }
    assert parse(defaulted(merged(minimal(), {"spec": nulls}))) == parse(defaulted(minimal()))


def test_without_redis_one_replica_is_wanted() -> None:
    assert parse(defaulted(minimal(replicas=5, redis={"mode": "Disabled"}))).wanted == 1
    assert parse(defaulted(minimal(replicas=0, redis={"mode": "Disabled"}))).wanted == 0


def test_a_field_that_an_old_crd_prunes_is_named_with_the_remedy() -> None:
    body = defaulted(minimal())
    del body["spec"]["rollout"]
    with pytest.raises(SpecError, match=r"spec\.rollout: missing; apply the CRD"):
        parse(body)


def test_the_crd_refuses_the_same_names_as_the_operator() -> None:
    env = schema()["properties"]["spec"]["properties"]["env"]["items"]
    rule = env["x-kubernetes-validations"][0]["rule"]
    assert {name for name in RESERVED_ENV if f"'{name}'" in rule} == RESERVED_ENV
    assert rule.count("'") == 2 * len(RESERVED_ENV)


def test_the_model_knows_every_field_of_the_crd() -> None:
    """Two lists of fields drift apart silently: an unknown key would be ignored."""
    from moorage_operator.resource import Part, Spec

    def walk(model: type[Part], part: dict[str, Any], path: str) -> None:
        known = {field.alias or name: field for name, field in model.model_fields.items()}
        assert set(known) == set(part["properties"]), path
        for name, field in known.items():
            annotation = next(
                (
                    a
                    for a in (field.annotation, *getattr(field.annotation, "__args__", ()))
                    if isinstance(a, type)
                ),
                None,
            )
            if (
                annotation is not None
                and issubclass(annotation, Part)
                and "properties" in part["properties"][name]
            ):
                walk(annotation, part["properties"][name], f"{path}.{name}")

    walk(Spec, schema()["properties"]["spec"], "spec")
