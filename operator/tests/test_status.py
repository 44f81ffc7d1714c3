from __future__ import annotations

from typing import Any

import pytest

from moorage_operator.observe import Observed
from moorage_operator.plan import MANAGED, NONE, DeploymentSeen, Plan, PodSeen, Render, Scale, Step
from moorage_operator.resource import Resource, parse
from moorage_operator.status import Situation, invalid_status, status_of, transitions

from .schema import defaulted, minimal

NOW, LATER = "2026-11-30T00:00:00Z", "2026-11-30T01:00:00Z"
ANSWERING = ("True", "Answering", "the managed Redis answers")


def observed(ready: int, total: int | None = None, backend: str = MANAGED, **more: Any) -> Observed:
    total = ready if total is None else total
    pods = tuple(PodSeen(f"p{n}", backend, n < ready) for n in range(total))
    return Observed(DeploymentSeen(backend, total, backend == NONE, True, total, total, ready), pods, **more)


def resource(**spec: Any) -> Resource:
    return parse(defaulted(minimal(**spec)))


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}


def told(
    one: Resource, found: Situation, before: dict[str, Any] | None = None, now: str = NOW
) -> dict[str, Any]:
    return status_of(one, found, before or {}, now)


def settled(replicas: int, backend: str = MANAGED) -> Plan:
    return Plan(Step.SETTLED, Render(backend, replicas, backend == NONE), backend == MANAGED)


def test_all_is_well() -> None:
    status = told(resource(), Situation(observed(3), settled(3), ANSWERING))
    assert conditions(status) == {
        "Ready": ("True", "AllReplicasReady"),
        "Available": ("True", "ReplicasReady"),
        "Progressing": ("False", "Settled"),
        "Degraded": ("False", "AsExpected"),
        "RedisReady": ("True", "Answering"),
    }
    assert (status["mode"], status["replicas"], status["readyReplicas"]) == ("Clustered", 3, 3)
    assert status["redis"] == {"mode": "Managed", "ready": True}
    assert status["selector"].count("=") == 3


def test_ready_is_not_true_while_anything_moves() -> None:
    for step in set(Step) - {Step.SETTLED, Step.PAUSED}:
        status = told(resource(), Situation(observed(3), Plan(step, Scale(3), True), ANSWERING))
        assert conditions(status)["Ready"] == ("False", step)
        assert conditions(status)["Progressing"] == ("True", step)


def test_zero_replicas_are_ready_and_serve_nobody() -> None:
    redis = ("False", "RedisNotReady", "")
    status = conditions(told(resource(replicas=0), Situation(observed(0), settled(0), redis)))
    assert status["Ready"] == ("True", "ScaledToZero")
    assert status["Available"] == ("False", "ScaledToZero")


def test_without_redis_both_numbers_are_named() -> None:
    one = resource(replicas=3, redis={"mode": "Disabled"})
    status = told(one, Situation(observed(1, backend=NONE), settled(1, NONE)))
    assert conditions(status)["Ready"] == ("True", "AllReplicasReady")
    assert conditions(status)["Available"] == ("True", "SingleReplicaWithoutRedis")
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Available")
    assert "1 replica" in message
    assert "3" in message
    assert "RedisReady" not in conditions(status)
    assert status["mode"] == "SingleReplica"


def test_one_replica_says_why_there_is_no_budget() -> None:
    status = told(resource(replicas=1), Situation(observed(1), settled(1), ANSWERING))
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Available")
    assert "PodDisruptionBudget" in message


def test_a_lost_redis_is_not_ready_but_available() -> None:
    status = conditions(told(resource(), Situation(observed(3), settled(3), ("False", "RedisNotReady", "x"))))
    assert status["Ready"] == ("False", "RedisNotReady")
    assert status["Available"][0] == "True"


def test_workers_count() -> None:
    one = resource(worker={"replicas": 2})
    found = Situation(observed(3, workers_available=1), settled(3), ANSWERING)
    assert conditions(told(one, found))["Ready"] == ("False", "WorkersNotReady")


def test_a_problem_makes_it_degraded_with_its_text() -> None:
    found = Situation(observed(3), settled(3), ANSWERING, problems=[("Refused", "spec.x: no"), ("B", "two")])
    status = told(resource(), found)
    assert conditions(status)["Degraded"] == ("True", "Refused")
    assert conditions(status)["Ready"] == ("False", "Refused")
    message = next(c["message"] for c in status["conditions"] if c["type"] == "Degraded")
    assert message == "spec.x: no; two"


def test_pod_trouble_and_a_stalled_roll_are_told() -> None:
    trouble = Situation(observed(0, 3, trouble="pod p: CrashLoopBackOff"), settled(3), ANSWERING)
    assert conditions(told(resource(), trouble))["Degraded"] == ("True", "PodsFailing")
    stalled = Situation(observed(0, 3, stalled="no progress", trouble="pod p"), settled(3), ANSWERING)
    assert conditions(told(resource(), stalled))["Degraded"] == ("True", "ProgressDeadlineExceeded")
    refused = Situation(observed(3, 3, refused="exceeded quota"), settled(3), ANSWERING)
    assert conditions(told(resource(), refused))["Degraded"] == ("True", "PodsRefused")


def test_paused() -> None:
    status = conditions(told(resource(paused=True), Situation(observed(3), settled(3), ANSWERING)))
    assert status["Progressing"] == ("False", "Paused")
    assert status["Ready"] == ("True", "AllReplicasReady")


def test_the_time_is_that_of_a_change_of_status() -> None:
    first = told(resource(), Situation(observed(3), settled(3), ANSWERING))
    rolling = Plan(Step.ROLLING_OUT, Render(MANAGED, 3, False), True)
    second = told(resource(), Situation(observed(3), rolling, ANSWERING), first, LATER)
    times = {c["type"]: c["lastTransitionTime"] for c in second["conditions"]}
    assert times["Ready"] == LATER
    assert times["Progressing"] == LATER
    assert times["Available"] == NOW
    third = told(resource(), Situation(observed(2), rolling, ANSWERING), second, "2026-11-30T02:00:00Z")
    assert {c["type"]: c["lastTransitionTime"] for c in third["conditions"]} == times


def test_the_same_again_is_equal() -> None:
    first = told(resource(), Situation(observed(3), settled(3), ANSWERING))
    assert told(resource(), Situation(observed(3), settled(3), ANSWERING), first, LATER) == first
    assert transitions(first, first) == []


@pytest.mark.parametrize("step", [Step.SCALING_DOWN, Step.ROLLING_OFF_REDIS, Step.WAITING_FOR_REDIS])
def test_a_step_is_an_event_and_shows_in_the_mode(step: Step) -> None:
    before = told(resource(), Situation(observed(3), settled(3), ANSWERING))
    after = told(resource(), Situation(observed(3), Plan(step, Scale(1), True), ANSWERING), before, LATER)
    assert after["mode"] == "Switching"
    assert [(kind, reason) for kind, reason, _ in transitions(before, after)] == [("Normal", step)]


def test_a_spec_that_cannot_be_read_keeps_what_was_true() -> None:
    before = told(resource(), Situation(observed(3), settled(3), ANSWERING))
    status = invalid_status(7, "spec.rollout: missing", before, LATER)
    assert conditions(status)["Ready"] == ("False", "SpecInvalid")
    assert conditions(status)["Available"] == ("True", "ReplicasReady")
    assert status["observedGeneration"] == 7
    assert status["readyReplicas"] == 3
