from __future__ import annotations

import pytest

from moorage_operator.errors import ApiError, Forbidden, NotFound
from moorage_operator.kubectl.cluster import Missing, NoCrd, path_of
from moorage_operator.kubectl.transport import Answer

from .fake import FakeApi, pod, server


def test_paths() -> None:
    assert path_of("Pod", "a", "b", "log") == "/api/v1/namespaces/a/pods/b/log"
    assert path_of("Deployment", None) == "/apis/apps/v1/deployments"
    assert path_of("Node", None, "box-1") == "/api/v1/nodes/box-1"


def test_a_long_list_is_fetched_page_by_page_and_whole() -> None:
    fake = FakeApi(*(pod(f"chat-{index}") for index in range(7)))
    fake.page_size = 3
    found = fake.cluster.all("Pod", "realtime")
    assert [body["metadata"]["name"] for body in found] == [f"chat-{index}" for index in range(7)]
    assert len(fake.sent) == 3


def test_objects_of_a_list_know_their_kind() -> None:
    (found,) = FakeApi(pod("chat-a")).cluster.all("Pod", "realtime")
    assert (found["kind"], found["apiVersion"]) == ("Pod", "v1")


def test_what_is_not_there_is_none_or_an_error() -> None:
    cluster = FakeApi().cluster
    assert cluster.find("Pod", "realtime", "chat-a") is None
    with pytest.raises(NotFound):
        cluster.get("Pod", "realtime", "chat-a")


def test_no_crd_no_object_and_another_name_are_told_apart() -> None:
    fake = FakeApi(server())
    with pytest.raises(Missing, match="no RealtimeServer x in namespace realtime; there is: chat"):
        fake.cluster.servers("realtime", "x")
    with pytest.raises(Missing, match="no RealtimeServer in namespace other"):
        fake.cluster.servers("other")
    fake.absent_kinds.add("RealtimeServer")
    with pytest.raises(NoCrd, match=r"manifests/00-crd\.yaml"):
        fake.cluster.servers("realtime")


@pytest.mark.parametrize("text", ["<html>sign in</html>", "[]", ""])
def test_an_answer_that_is_no_json_object_is_an_error_not_a_crash(text: str) -> None:
    fake = FakeApi()
    fake.refused["GET pods"] = Answer(200, text)
    with pytest.raises(ApiError, match="is this a Kubernetes API server"):
        fake.cluster.all("Pod", "realtime")


def test_a_refusal_without_json_keeps_its_text() -> None:
    fake = FakeApi()
    fake.refused["GET pods"] = Answer(403, "proxy says no\n")
    with pytest.raises(Forbidden, match="proxy says no"):
        fake.cluster.all("Pod", "realtime")


def test_the_log_is_bounded() -> None:
    fake = FakeApi()
    fake.cluster.log("realtime", "chat-a", "server", since=0.2, previous=True)
    query = fake.sent[-1][2]
    assert query["sinceSeconds"] == "1", "the API refuses 0"
    assert query["previous"] == "true"
    assert int(query["limitBytes"]) > 0
