from __future__ import annotations

from moorage_operator.kubectl import clients
from moorage_operator.kubectl.scrape import Scrape, scraped

from .fake import metrics, pod

PODS = [pod("chat-a"), pod("chat-b"), pod("chat-redis-0", component="redis")]


def test_sockets_are_counted_by_pod_and_type_and_summed() -> None:
    found = {
        "chat-a": scraped(metrics(3, 1, registrations=4)),
        "chat-b": scraped(metrics(5, 2, registrations=4)),
    }
    lines = clients.render(PODS, found)
    cells = {line.split()[0]: line.split()[1:] for line in lines}
    assert cells["POD"] == [
        "USER-SCOPED",
        "SESSION-SCOPED",
        "MACHINE-SCOPED",
        "TOTAL",
        "REGISTRATIONS",
        "CALLS",
        "LAG",
    ]
    assert cells["chat-a"] == ["3", "-", "1", "4", "4", "1", "-"]
    assert cells["all"] == ["8", "0", "3", "11", "-", "2", "-"]
    assert len(lines) == 4, "Redis is no server, and nothing is odd"
    assert clients.complete(PODS, found)


def test_an_unknown_type_gets_a_column() -> None:
    lines = clients.render(PODS[:1], {"chat-a": Scrape(clients={"robot": 2})})
    assert "ROBOT" in lines[0]
    assert lines[-1].split()[4:6] == ["2", "2"]


def test_a_pod_that_did_not_answer_is_named() -> None:
    found = {"chat-a": scraped(metrics(3)), "chat-b": Scrape(error="connection refused")}
    lines = clients.render(PODS, found)
    assert "  ! chat-b: connection refused" in lines
    assert not clients.complete(PODS, found)
    assert not clients.complete(PODS, {"chat-a": Scrape()}), "one that was not asked did not answer"


def test_replicas_that_do_not_agree_are_told_but_not_those_that_are_not_ready() -> None:
    found = {"chat-a": Scrape(registrations=4), "chat-b": Scrape(registrations=7)}
    assert any("(4, 7)" in line for line in clients.render(PODS, found))
    starting = [pod("chat-a"), pod("chat-b", ready=False)]
    assert not any("(4, 7)" in line for line in clients.render(starting, found))


def test_no_servers_is_said() -> None:
    assert clients.render(PODS[2:], {}) == ["no server pods"]
