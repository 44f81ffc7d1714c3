from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moorage_operator.kubectl.scrape import Scrape, scrape, scrape_all, scraped
from moorage_operator.kubectl.transport import Answer

from .fake import FakeApi, metrics, pod, status, waiting, whole


def test_values_are_read_by_client_type() -> None:
    found = scraped(metrics(3, 1, registrations=4, drain=1))
    assert found.clients == {"user-scoped": 3, "machine-scoped": 1}
    assert (found.connections, found.registrations, found.calls, found.members) == (4, 4, 1, 2)
    assert found.draining == 1
    assert found.lag_ms is None, "NaN is unknown, not a number"


def test_a_page_without_our_metrics_says_nothing_and_is_no_error() -> None:
    assert scraped("up 1\n") == Scrape()


@given(st.text(max_size=200))
def test_any_page_is_survived(text: str) -> None:
    found = scraped(text)
    assert found.connections is None or found.connections == sum(found.clients.values())


def test_pods_are_asked_side_by_side_and_by_name() -> None:
    fake = whole()
    found = scrape_all(fake.cluster, [pod("chat-a"), pod("chat-b")])
    assert {name: answer.connections for name, answer in found.items()} == {"chat-a": 4, "chat-b": 7}


def test_a_pod_that_does_not_run_is_not_asked() -> None:
    fresh = pod("chat-a")
    del fresh["status"]["podIP"]
    fake = FakeApi(fresh)
    assert scrape_all(fake.cluster, [fresh, waiting(pod("chat-b"), "ContainerCreating")]) == {}
    assert fake.sent == []


def test_a_refused_connection_and_a_missing_right_are_told_apart() -> None:
    fake = FakeApi()
    assert scrape(fake.cluster, pod("chat-a")).error == "dial tcp 10.0.0.1:9090: connect: connection refused"
    fake.refused["GET proxy"] = Answer(403, status(403, "Forbidden", "pods is forbidden"))
    assert "get on pods/proxy" in scrape(fake.cluster, pod("chat-a")).error
    fake.refused["GET proxy"] = Answer(0, "")
    assert scrape(fake.cluster, pod("chat-a")).error
