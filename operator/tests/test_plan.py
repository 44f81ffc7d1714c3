"""The machine against a small world: a Deployment controller, pods, a Redis; everything in any order."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moorage_operator.plan import (
    MANAGED,
    NONE,
    DeploymentSeen,
    Plan,
    PodSeen,
    Render,
    Scale,
    Seen,
    Step,
    plan,
)

OTHER = "external:a"
THIRD = "external:b"


@dataclass
class Pod:
    name: int
    revision: int
    ready: bool = False
    terminating: bool = False


@dataclass
class World:
    """A Deployment as its controller treats it: revisions are pod templates, here only a backend."""

    exists: bool = False
    backends: list[str] = field(default_factory=list)
    replicas: int = 0
    recreate: bool = False
    settled: bool = True
    pods: list[Pod] = field(default_factory=list)
    counter: int = 0
    redis: bool = False
    redis_ready: bool = False
    usable: dict[str, bool] = field(default_factory=lambda: {OTHER: True, THIRD: True})
    seen_status: tuple[int, int, int] = (0, 0, 0)
    surge: int = 2

    def backend(self, pod: Pod) -> str:
        return self.backends[pod.revision]

    def living(self, revision: int | None = None) -> list[Pod]:
        return [p for p in self.pods if not p.terminating and revision in (None, p.revision)]

    def serving(self) -> list[Pod]:
        return [p for p in self.living() if p.ready]

    def seen(self, target: str) -> Seen:
        deployment = None
        if self.exists:
            alive, updated, available = self.seen_status
            deployment = DeploymentSeen(
                self.backends[-1], self.replicas, self.recreate, self.settled, alive, updated, available
            )
        pods = tuple(PodSeen(str(p.name), self.backend(p), p.ready, p.terminating) for p in self.pods)
        usable = self.redis and self.redis_ready if target == MANAGED else self.usable.get(target, True)
        return Seen(deployment, pods, self.redis, usable)

    def create(self, revision: int) -> None:
        self.counter += 1
        self.pods.append(Pod(self.counter, revision))

    def apply_redis(self, decision: Plan) -> None:
        if decision.keep_redis and not self.redis:
            self.redis, self.redis_ready = True, False
        if not decision.keep_redis:
            self.redis = self.redis_ready = False

    def apply_server(self, decision: Plan) -> None:
        server = decision.server
        if isinstance(server, Scale) and self.replicas != server.replicas:
            self.replicas, self.settled = server.replicas, False
        elif isinstance(server, Render):
            before = (self.exists, self.backends[-1:], self.replicas, self.recreate)
            if self.backends[-1:] != [server.backend]:
                self.backends.append(server.backend)
            self.exists, self.replicas, self.recreate = True, server.replicas, server.recreate
            if before != (True, [server.backend], server.replicas, server.recreate):
                self.settled = False

    def controller(self) -> None:
        """One turn of the Deployment controller and its ReplicaSets."""
        if not self.exists:
            return
        newest = len(self.backends) - 1
        old = [p for p in self.living() if p.revision != newest]
        new = self.living(newest)
        if self.recreate:
            for pod in old:
                pod.terminating = True
            if not any(p.revision != newest for p in self.pods):  # also waits for the terminating ones
                self._resize(newest, self.replicas)
        else:
            # maxUnavailable 0: an old ready pod goes only when enough ready ones remain.
            for pod in old:
                if not pod.ready or len(self.serving()) > self.replicas:
                    pod.terminating = True
            old = [p for p in old if not p.terminating]
            room = self.replicas + (self.surge if old else 0) - len(old)
            self._resize(newest, max(0, min(self.replicas, room)) if old else self.replicas)
            if old and len(new) >= self.replicas:
                for pod in old:
                    if len(self.serving()) > self.replicas:
                        pod.terminating = True
        self.settled = True
        self.report()

    def report(self) -> None:
        newest = len(self.backends) - 1
        self.seen_status = (len(self.living()), len(self.living(newest)), len(self.serving()))

    def _resize(self, revision: int, count: int) -> None:
        while len(self.living(revision)) < count:
            self.create(revision)
        for pod in self.living(revision)[count:]:
            pod.terminating = True

    def become_ready(self) -> None:
        for pod in self.living():
            pod.ready = True
        self.redis_ready = self.redis
        if self.exists:
            self.report()

    def end(self) -> None:
        self.pods = [p for p in self.pods if not p.terminating]


class Switching(RuleBasedStateMachine):
    """Specs, operator deaths between the two writes, pod losses: never islands, always arrives."""

    @initialize(goal=st.sampled_from([NONE, MANAGED, OTHER]), wanted=st.integers(0, 4))
    def begin(self, goal: str, wanted: int) -> None:
        self.world = World()
        self.target, self.wanted = goal, wanted

    @rule(goal=st.sampled_from([NONE, MANAGED, OTHER, THIRD]), wanted=st.integers(0, 4))
    def spec_changes(self, goal: str, wanted: int) -> None:
        self.target, self.wanted = goal, wanted

    @rule(dies=st.sampled_from(["no", "before", "between"]))
    def operator_passes(self, dies: str) -> None:
        decision = plan(self.target, self.wanted, self.world.seen(self.target))
        if dies == "before":
            return
        self.world.apply_redis(decision)
        if dies == "between":
            return
        self.world.apply_server(decision)

    @rule()
    def controller_turns(self) -> None:
        self.world.controller()

    @rule(order=st.permutations(["pass", "controller", "ready", "end"]), times=st.integers(1, 3))
    def things_get_on(self, order: list[str], times: int) -> None:
        """Several parties act, in any order: without it a walk seldom gets far into a switch."""
        for what in order * times:
            if what == "pass":
                self.operator_passes("no")
            elif what == "controller":
                self.world.controller()
            elif what == "ready":
                self.world.become_ready()
            else:
                self.world.end()
            self.no_islands()

    @rule(data=st.data())
    def pod_becomes_ready(self, data: st.DataObject) -> None:
        waiting = [p for p in self.world.living() if not p.ready]
        if waiting:
            data.draw(st.sampled_from(waiting)).ready = True

    @rule(data=st.data())
    def pod_is_evicted(self, data: st.DataObject) -> None:
        """Its ReplicaSet makes another at once, of its own template."""
        if self.world.living():
            pod = data.draw(st.sampled_from(self.world.living()))
            pod.terminating = True
            if self.world.exists:
                self.world.create(pod.revision)

    @rule()
    def terminated_pods_end(self) -> None:
        self.world.end()

    @rule()
    def redis_becomes_ready(self) -> None:
        self.world.redis_ready = self.world.redis

    @rule()
    def redis_is_lost(self) -> None:
        self.world.redis_ready = False

    @rule(up=st.booleans())
    def external_secret(self, up: bool) -> None:
        self.world.usable[OTHER] = up

    @precondition(lambda self: self.world.exists)
    @rule()
    def deployment_is_deleted(self) -> None:
        self.world.exists = False
        for pod in self.world.living():
            pod.terminating = True

    @invariant()
    def no_islands(self) -> None:
        if not hasattr(self, "world"):
            return
        serving = [self.world.backend(p) for p in self.world.serving()]
        assert serving.count(NONE) <= 1, "more than one replica without Redis"
        assert len(set(serving)) <= 1, f"pods of two backends side by side: {serving}"

    def teardown(self) -> None:
        """Left alone, with everything healthy, it settles, and then stays."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.usable[OTHER] = True
        for _ in range(60):
            world.controller()
            world.become_ready()
            world.end()
            decision = plan(self.target, self.wanted, world.seen(self.target))
            world.apply_redis(decision)
            world.apply_server(decision)
            if decision.step is Step.SETTLED:
                break
            self.no_islands()
        else:
            raise AssertionError(f"does not settle: {decision}, {world}")
        wanted = min(self.wanted, 1) if self.target == NONE else self.wanted
        assert [world.backend(p) for p in world.serving()] == [self.target] * wanted
        assert world.redis is (self.target == MANAGED)
        assert world.recreate is (self.target == NONE)


Switching.TestCase.settings = settings(max_examples=250, stateful_step_count=40)
TestSwitching = Switching.TestCase


def steps(world: World, target: str, wanted: int) -> list[str]:
    """The steps that a quiet switch passes, each once."""
    passed: list[str] = []
    for _ in range(40):
        decision = plan(target, wanted, world.seen(target))
        if [decision.step] != passed[-1:]:
            passed.append(decision.step)
        if decision.step is Step.SETTLED:
            return passed
        world.apply_redis(decision)
        world.apply_server(decision)
        world.controller()
        world.become_ready()
        world.end()
        world.controller()
        world.become_ready()
    raise AssertionError(passed)


def test_the_order_of_steps() -> None:
    world = World()
    assert steps(world, NONE, 3) == ["RollingOut", "Settled"]
    assert steps(world, MANAGED, 3) == [
        "WaitingForRedis",
        "RollingOntoRedis",
        "ScalingUp",
        "Settled",
    ]
    assert steps(world, OTHER, 3) == [
        "ScalingDown",
        "RollingOntoRedis",
        "ScalingUp",
        "Settled",
    ]
    assert not world.redis
    assert steps(world, MANAGED, 3)[:2] == ["WaitingForRedis", "ScalingDown"]
    assert steps(world, NONE, 3) == ["ScalingDown", "RollingOffRedis", "RemovingRedis", "Settled"]


def test_a_lost_redis_changes_nothing() -> None:
    """An outage is the server's business: no replica may be taken away for it."""
    world = World()
    steps(world, MANAGED, 3)
    world.redis_ready = False
    assert plan(MANAGED, 3, world.seen(MANAGED)) == Plan(Step.SETTLED, Render(MANAGED, 3, False), True)


def test_a_rollout_undone_by_hand_is_put_back_at_once() -> None:
    seen = Seen(DeploymentSeen(NONE, 3, False, True, 4, 1, 3), (PodSeen("a", NONE, False),), True, True)
    assert plan(MANAGED, 3, seen).server == Render(MANAGED, 3, False)


@pytest.mark.parametrize(
    ("deployment", "pods"),
    [
        (DeploymentSeen(MANAGED, 1, False, False, 1, 1, 1), 1),
        (DeploymentSeen(MANAGED, 1, False, True, 3, 3, 3), 1),
        (DeploymentSeen(MANAGED, 1, False, True, 1, 1, 1), 2),
    ],
    ids=["not-yet-seen-by-its-controller", "pods-left", "pods-still-ready"],
)
def test_the_scale_down_is_waited_for(deployment: DeploymentSeen, pods: int) -> None:
    seen = Seen(deployment, tuple(PodSeen(str(n), MANAGED, True) for n in range(pods)), True, True)
    assert plan(NONE, 3, seen) == Plan(Step.SCALING_DOWN, Scale(1), True)


@pytest.mark.parametrize(
    "deployment",
    [
        DeploymentSeen(MANAGED, 1, True, False, 1, 1, 1),
        DeploymentSeen(MANAGED, 1, True, True, 1, 0, 1),
        DeploymentSeen(MANAGED, 1, True, True, 1, 1, 0),
        DeploymentSeen(MANAGED, 1, True, True, 0, 0, 0),
    ],
    ids=["not-yet-seen-by-its-controller", "old-pod-left", "not-available", "none-yet"],
)
def test_no_scale_up_before_the_roll_is_over(deployment: DeploymentSeen) -> None:
    assert plan(MANAGED, 3, Seen(deployment, (), True, True)) == Plan(
        Step.ROLLING_ONTO_REDIS, Render(MANAGED, 1, True), True
    )


def test_a_switch_to_a_redis_that_is_not_there_waits_with_the_old_one() -> None:
    seen = Seen(DeploymentSeen(MANAGED, 3, False, True, 3, 3, 3), (), True, usable=False)
    assert plan(OTHER, 4, seen) == Plan(Step.WAITING_FOR_REDIS, Scale(4), True)
