from __future__ import annotations

import pytest

from moorage_operator.kubectl.cluster import Missing
from moorage_operator.kubectl.drain import Drain, choose, lonely, progress
from moorage_operator.kubectl.scrape import Scrape
from moorage_operator.kubectl.transport import Answer

from .fake import FakeApi, ago, budget, metrics, pod, refused_by_budget, status, whole


class World:
    """A fake cluster whose pod loses a connection each second once it is evicted, and a clock that does not wait."""

    def __init__(self, fake: FakeApi, connections: int = 3) -> None:
        self.fake, self.time, self.said = fake, 0.0, []
        self.left: int | None = None
        self.connections = connections
        fake.on_evict = self._evict

    def _evict(self, name: str) -> None:
        self.left = self.connections
        self.fake.put(pod(name, deletionTimestamp=ago(-30), deletionGracePeriodSeconds=30))

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.left is None:
            return
        self.left -= 1
        self.fake.pages["chat-a:9090/metrics"] = metrics(max(self.left, 0), drain=1)
        if self.left == 0:
            del self.fake.pages["chat-a:9090/metrics"]
        if self.left < -1:
            self.fake.drop(pod("chat-a"))
            self.left = None

    def drain(self, **options: float | bool) -> int:
        drain = Drain(self.fake.cluster, self.said.append, sleep=self.sleep, clock=lambda: self.time)
        return drain.run(choose(self.fake.cluster, "realtime", "chat-a"), **options)  # type: ignore[arg-type]

    @property
    def text(self) -> str:
        return "\n".join(self.said)


def test_connections_are_seen_going_to_nothing() -> None:
    world = World(whole())
    world.fake.pages["chat-a:9090/metrics"] = metrics(3)
    assert world.drain() == 0
    assert "chat-a: eviction accepted, 3 connections" in world.text
    assert "draining: 2 of 3 connections left" in world.text
    assert "its server has closed" in world.text
    assert "chat-a is gone after 5 s; 1 servers of chat are ready" in world.text
    assert "note:" not in world.text


def test_a_refusal_says_why_and_what_to_do() -> None:
    fake = whole()
    fake.put(pod("chat-b", ready=False))
    fake.put(budget(allowed=0))
    fake.refused["POST eviction"] = refused_by_budget()
    world = World(fake)
    assert world.drain() == 1
    assert "refused: Cannot evict pod as it would violate the pod's disruption budget." in world.text
    assert "The budget chat keeps 1 ready; now 1 of 2 are." in world.text
    assert "Not ready: chat-b" in world.text
    assert "kubectl -n realtime scale rts chat --replicas=N" in world.text
    assert sum(method == "POST" for method, _, _ in fake.sent) == 1, "asked once, no insisting"


def test_a_refusal_by_somebody_elses_budget_names_no_wrong_one() -> None:
    fake = whole()
    fake.drop(budget())
    fake.refused["POST eviction"] = refused_by_budget()
    world = World(fake)
    assert world.drain() == 1
    assert "Another budget than the operator's" in world.text


def test_the_last_server_is_let_go_with_a_warning() -> None:
    fake = whole()
    fake.put(pod("chat-b", ready=False))
    world = World(fake)
    assert world.drain() == 0
    assert "no other server of chat is ready" in world.text


def test_a_dry_run_evicts_nothing() -> None:
    world = World(whole())
    assert world.drain(dry_run=True) == 0
    assert world.left is None
    assert "would be evicted" in world.text
    assert next(query for method, _, query in world.fake.sent if method == "POST") == {"dryRun": "All"}


def test_a_pod_that_is_going_already_is_watched_not_evicted_again() -> None:
    world = World(whole())
    world._evict("chat-a")
    assert world.drain() == 0
    assert not any(method == "POST" for method, _, _ in world.fake.sent)


def test_a_pod_that_does_not_go_ends_the_watch() -> None:
    world = World(whole(), connections=10_000)
    assert world.drain(timeout=20) == 1
    assert "still there after 20 s" in world.text
    assert world.time <= 21


def test_the_watch_outlives_an_api_server_that_is_away() -> None:
    world = World(whole())
    usual = world.sleep

    def sleep(seconds: float) -> None:
        usual(seconds)
        if world.time == 1:
            world.fake.refused["GET pods/chat-a"] = Answer(0, "")
        elif world.time > 3:
            world.fake.refused.clear()

    world.sleep = sleep  # type: ignore[method-assign]
    assert world.drain() == 0
    assert "the drain goes on without it" in world.text


def test_a_namesake_that_took_its_place_is_not_waited_for() -> None:
    world = World(whole(), connections=10_000)

    def sleep(seconds: float) -> None:
        world.time += seconds
        fresh = pod("chat-a")
        fresh["metadata"]["uid"] = "another"
        world.fake.put(fresh)

    world.sleep = sleep  # type: ignore[method-assign]
    assert world.drain() == 0


def test_only_server_pods_are_drained() -> None:
    fake = whole()
    stranger = pod("web")
    stranger["metadata"]["labels"] = {}
    fake.put(stranger)
    with pytest.raises(Missing, match=r"server pods there: chat-a, chat-b"):
        choose(fake.cluster, "realtime", "nope")
    with pytest.raises(Missing, match="kubectl -n realtime delete pod chat-redis-0"):
        choose(fake.cluster, "realtime", "chat-redis-0")
    with pytest.raises(Missing, match="no part"):
        choose(fake.cluster, "realtime", "web")


def test_a_forbidden_eviction_is_an_error_not_a_refusal() -> None:
    fake = whole()
    fake.refused["POST eviction"] = Answer(403, status(403, "Forbidden", "pods/eviction is forbidden"))
    with pytest.raises(Exception, match="pods/eviction is forbidden"):
        World(fake).drain()


def test_lonely() -> None:
    mine = pod("chat-a")
    assert lonely(mine, [mine])
    assert lonely(
        mine, [mine, pod("chat-b", deletionTimestamp=ago(0)), pod("chat-redis-0", component="redis")]
    )
    assert not lonely(mine, [mine, pod("chat-b")])


def test_progress_never_claims_what_it_does_not_know() -> None:
    assert progress(pod("a"), Scrape(clients={"user-scoped": 9}), 3) == "draining: 9 connections left"
    assert "forbidden" in progress(pod("a"), Scrape(error="forbidden"), None)
