"""A claim that is to grow: where its class allows it, and where not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .world import Cluster, One

DEFAULT = "storageclass.kubernetes.io/is-default-class"


@pytest.fixture
def class_of(cluster: Cluster) -> Iterator[Callable[[bool], str]]:
    """``class_of(grows)``: a StorageClass like the cluster's default, that allows growing or does not."""
    made: list[str] = []

    def make(grows: bool) -> str:
        classes = cluster.items("storageclasses")
        (default,) = (c for c in classes if c["metadata"].get("annotations", {}).get(DEFAULT) == "true")
        name = f"{cluster.namespace}-{'grows' if grows else 'stays'}"
        body = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": name},
            "provisioner": default["provisioner"],
            "parameters": default.get("parameters"),
            "allowVolumeExpansion": grows,
        }
        cluster.kubectl("create", "-f", "-", body=body)
        made.append(name)
        return name

    yield make
    for name in made:
        cluster.kubectl("delete", "storageclass", name)


def claim(one: One) -> dict[str, Any]:
    return one.cluster.items("pvc", *one.labels)[0]


def asked(one: One) -> str:
    return str(claim(one)["spec"]["resources"]["requests"]["storage"])


def test_a_claim_grows_where_its_class_allows_it(one: One, class_of: Callable[[bool], str]) -> None:
    """What carries it out is the class's own resizer; the operator's part is to ask, once."""
    one.apply(replicas=1, redis={"storage": {"className": class_of(True)}})
    one.ready()
    assert asked(one) == "1Gi"
    uid, redis = claim(one)["metadata"]["uid"], one.pods("redis")[0]["metadata"]["uid"]
    one.patch(redis={"storage": {"size": "2Gi"}})
    one.cluster.until("asked for", lambda: asked(one) == "2Gi")
    one.ready()
    assert not one.condition("ConfigurationWarning")
    assert claim(one)["metadata"]["uid"] == uid
    assert one.pods("redis")[0]["metadata"]["uid"] == redis, "Redis may not be restarted for it"


def test_one_that_cannot_grow_is_told_until_there_is_a_new_one(
    one: One, class_of: Callable[[bool], str]
) -> None:
    one.apply(replicas=1, redis={"storage": {"className": class_of(False)}})
    one.ready()
    one.patch(redis={"storage": {"size": "2Gi"}})
    found = one.told("ConfigurationWarning", "StorageNotExpandable")
    assert found["status"] == "True"
    assert f"data-{one.name}-redis-0 stays at 1Gi" in found["message"]
    assert "by hand" in found["message"]
    one.ready()
    assert asked(one) == "1Gi"
    back = one.cluster.kubectl(
        "patch",
        "rts",
        one.name,
        "--type=merge",
        "-p",
        '{"spec":{"redis":{"storage":{"size":"1Gi"}}}}',
        check=False,
    )
    assert "cannot shrink" in back.stderr

    # The remedy without the data, as the page has it.
    one.patch(redis={"mode": "Disabled"})
    one.ready()
    one.cluster.kubectl("delete", "pvc", f"data-{one.name}-redis-0", "--timeout=60s")
    one.patch(redis={"mode": "Managed"})
    one.ready()
    assert asked(one) == "2Gi"
    assert not one.condition("ConfigurationWarning")
