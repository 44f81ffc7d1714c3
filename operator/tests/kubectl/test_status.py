from __future__ import annotations

import pytest

from moorage_operator.kubectl import status
from moorage_operator.kubectl.pods import state, trouble, version
from moorage_operator.kubectl.scrape import Scrape
from moorage_operator.kubectl.transport import Answer

from .fake import NOW, FakeApi, ago, condition, pod, server, waiting, whole
from .fake import status as status_text


def shown(fake: FakeApi, name: str = "chat") -> str:
    (body,) = fake.cluster.servers("realtime", name)
    return "\n".join(status.render(status.look(fake.cluster, body), NOW))


def test_a_settled_object_is_told_whole() -> None:
    text = shown(whole())
    assert "Ready         True     AllReplicasReady   5m      2 of 2 replicas are ready" in text
    assert "Connections   11 on 2 pods" in text
    assert "Redis         Managed, ready" in text
    assert "1 eviction allowed now (2 healthy, 1 must stay)" in text
    assert "chat-a         serving   yes     4             1       1.0.0" in text
    assert "!" not in text, "nothing needs anybody"


def test_what_needs_somebody_is_marked() -> None:
    bad = server(conditions=[condition("Degraded", "True", "SecretNotFound", "Secret mail does not exist")])
    text = shown(FakeApi(bad))
    assert "True !" in text
    assert "SecretNotFound" in text
    assert "no pods" in text


def test_progress_is_news_not_trouble() -> None:
    rolling = server(conditions=[condition("Progressing", "True", "RollingOut", "the Deployment is rolling")])
    assert "!" not in shown(FakeApi(rolling))


def test_an_operator_that_does_not_look_is_seen() -> None:
    body = server(observedGeneration=2)
    text = shown(FakeApi(body))
    assert "the operator has seen generation 2, the spec is at 3" in text
    assert not status.healthy(body)
    assert status.healthy(server())


def test_an_object_without_a_status_is_survived() -> None:
    body = server()
    del body["status"]
    text = shown(FakeApi(body))
    assert "the operator has not looked at this object yet" in text
    assert not status.healthy(body)


def test_missing_rights_cost_only_their_part() -> None:
    fake = whole()
    fake.refused["GET proxy"] = Answer(403, status_text(403, "Forbidden", "no"))
    fake.refused["GET poddisruptionbudgets"] = Answer(
        403, status_text(403, "Forbidden", "budgets is forbidden")
    )
    text = shown(fake)
    assert "AllReplicasReady" in text
    assert "get on pods/proxy" in text
    assert "budgets is forbidden" in text


def test_metrics_that_are_off_are_not_asked_for() -> None:
    body = server()
    body["spec"]["metrics"]["enabled"] = False
    fake = FakeApi(body, pod("chat-a"))
    assert "spec.metrics.enabled is false" in shown(fake)
    assert not any("proxy" in path for _, path, _ in fake.sent)


def test_disabled_redis_is_said() -> None:
    body = server(redis={"mode": "Disabled"})
    body["spec"]["redis"]["mode"] = "Disabled"
    assert "Disabled: one replica, everything in memory" in shown(FakeApi(body))


def test_states_of_pods() -> None:
    going = pod("a", deletionTimestamp=ago(-22), deletionGracePeriodSeconds=30)
    assert state(going, None, NOW) == "draining 8s"
    assert state(pod("a"), Scrape(draining=1), NOW) == "draining"
    assert state(pod("a"), Scrape(), NOW) == "serving"
    assert state(pod("a", ready=False), None, NOW) == "not ready"
    failing = waiting(pod("a"), "ImagePullBackOff", "Back-off pulling image x")
    assert state(failing, None, NOW) == "ImagePullBackOff"
    assert trouble(failing) == "Back-off pulling image x"
    unplaced = pod("a")
    unplaced["status"] = {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
        ],
    }
    assert (state(unplaced, None, NOW), trouble(unplaced)) == ("Unschedulable", "0/2 nodes")
    evicted = pod("a")
    evicted["status"] = {"phase": "Failed", "reason": "Evicted"}
    assert state(evicted, None, NOW) == "Evicted"


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("registry:5000/a/b:1.2", "1.2"),
        ("registry:5000/a/b", "latest"),
        ("a/b@sha256:0123456789abcdef0123", "sha256:0123456789ab"),
    ],
)
def test_the_version_is_the_tag_or_a_digest(image: str, tag: str) -> None:
    body = pod("a")
    body["spec"]["containers"][0]["image"] = image
    assert version(body) == tag
