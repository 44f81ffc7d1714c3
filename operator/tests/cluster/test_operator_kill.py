"""Row `operator-kill`: SIGKILL in each step; the next process finishes, and nothing harmful is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import fresh
from .world import Cluster, One, Operator, Pods


@pytest.fixture(scope="module")
def kill_cluster(crd: None) -> Iterator[Cluster]:
    """A namespace that no other operator watches."""
    yield from fresh("moorage-kill")


def killed_at(one: One, operator: Operator, *steps: str) -> None:
    """SIGKILL as soon as the first step shows, or a later one: what came and went with no operator nobody tells."""

    def shows() -> bool:
        present = one.condition("Progressing")
        if present.get("reason") in steps or any(one.events(step) for step in steps):
            return True
        over = present.get("observedGeneration") == one.body()["metadata"]["generation"]
        return over and present.get("reason") == "Settled"

    one.cluster.until(f"step {steps[0]}", shows, 60)
    operator.kill()
    operator.start()


def test_whatever_step_it_dies_in_the_next_one_finishes(kill_cluster: Cluster, tmp_path: Path) -> None:
    one = One(kill_cluster, "chat")
    operator = Operator(tmp_path / "log", kill_cluster.namespace)
    operator.start()
    try:
        one.apply(replicas=2)
        killed_at(one, operator, "WaitingForRedis")
        one.ready()
        secret = one.there("secret", "-secret-key")["data"]
        with Pods(one) as pods:
            for mode, steps in (
                ("Disabled", ["ScalingDown", "RollingOffRedis", "RemovingRedis"]),
                ("Managed", ["RollingOntoRedis", "ScalingUp"]),
            ):
                before = one.revision()
                one.cluster.kubectl("delete", "events", "--all")
                one.patch(redis={"mode": mode})
                for number in range(len(steps)):
                    killed_at(one, operator, *steps[number:])
                one.ready()
                assert one.revision() == before + 1, "a step was repeated with another pod template"
        pods.check_no_islands()
        assert one.there("secret", "-secret-key")["data"] == secret
        assert one.body()["status"]["readyReplicas"] == 2
    finally:
        operator.stop()
