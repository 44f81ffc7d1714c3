"""Faults against a driver that only notes what it is asked: order of journal, act, undo; the history."""

from __future__ import annotations

from typing import Any, cast

import pytest

from moorage_chaos.drivers.base import Driver, DriverError, Evidence
from moorage_chaos.faults import link, process, redis
from moorage_chaos.faults.base import Fault, Faults
from moorage_chaos.history import History


class FakeReplica:
    def __init__(self, number: int) -> None:
        self.link = f"replica-{number}"
        self.id = f"{self.link}-a"
        self.generation = 1
        self.pid = 0
        self.state = "ready"


class FakeDriver:
    """Notes every request; its links and Redis note theirs in the same list."""

    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.replicas = [FakeReplica(1), FakeReplica(2)]
        self.links = self
        self.redis = self
        self.up = True
        self.fails = False

    def _note(self, what: str, target: str = "redis") -> Evidence:
        self.said.append(f"{what} {target}")
        if self.fails:
            raise DriverError("no")
        return Evidence(7, what, target, {"n": 1})

    async def kill(self, replica: FakeReplica | None = None) -> Evidence:
        if replica is None:
            self.up = False
            return self._note("redis-kill")
        replica.state = "dead"
        return self._note("kill", replica.id)

    async def terminate(self, replica: FakeReplica, timeout_s: float) -> Evidence:
        replica.state = "dead"
        return self._note("terminate", replica.id)

    async def launch(self, replica: FakeReplica, *, wait: bool = True) -> None:
        replica.state, replica.generation = "ready", replica.generation + 1
        self._note("launch", replica.link)

    async def wait_ready(self, replica: FakeReplica | None = None) -> None:
        self._note("wait", replica.link if replica else "all")

    async def pause(self, replica: FakeReplica | None = None) -> Evidence:
        if replica is None:
            return self._note("redis-pause")
        replica.state = "paused"
        return self._note("pause", replica.id)

    async def resume(self, replica: FakeReplica | None = None) -> Evidence:
        if replica is not None:
            replica.state = "ready"
        return self._note("resume", replica.id if replica else "redis")

    async def start(self, *, keep: bool) -> None:
        self.up = True
        self._note(f"start keep={keep}")

    async def cut(self, name: str) -> Evidence:
        return self._note("cut", name)

    async def refuse(self, name: str) -> Evidence:
        return self._note("refuse", name)

    async def freeze(self, name: str) -> Evidence:
        return self._note("freeze", name)

    async def blackhole(self, name: str, direction: str) -> Evidence:
        return self._note(f"blackhole-{direction}", name)

    async def slow(self, name: str, *, delay_ms: float, bytes_per_s: int) -> Evidence:
        return self._note(f"slow-{delay_ms}-{bytes_per_s}", name)

    async def heal(self, name: str) -> None:
        self._note("heal", name)


class FakeJournal:
    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.open: dict[int, dict[str, Any]] = {}

    def write(self, record: dict[str, Any]) -> int:
        self.said.append("journal")
        self.open[len(self.open) + 1] = record
        return len(self.open)

    def done(self, number: int) -> None:
        self.said.append("done")
        del self.open[number]


class Recorded(link.Freeze):
    """A fault with an undo record."""

    def undo_record(self) -> dict[str, Any]:
        return {"do": "cont", "pid": 1, "start": 1}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def driver(said: list[str]) -> FakeDriver:
    return FakeDriver(said)


@pytest.fixture
def faults(driver: FakeDriver, said: list[str]) -> Faults:
    return Faults(cast(Driver, driver), History(), FakeJournal(said))


def replica_of(driver: FakeDriver) -> Any:
    return driver.replicas[0]


async def test_the_undo_is_written_before_the_act_and_removed_after_the_undo(
    faults: Faults, said: list[str]
) -> None:
    async with faults.hold(Recorded("replica-1")) as evidence:
        assert evidence.proof == {"n": 1}
        assert said == ["journal", "freeze replica-1"]
    assert said == ["journal", "freeze replica-1", "heal replica-1", "done"]
    pairs = [pair for op in ("fault", "undo") for pair in faults._history.pairs(op)]
    assert [(pair.value["kind"], pair.phase) for pair in pairs] == [("link-freeze", "ok")] * 2
    assert pairs[0].result["tNs"] == 7


async def test_a_fault_that_did_not_bite_is_said_and_undone_all_the_same(
    faults: Faults, driver: FakeDriver, said: list[str]
) -> None:
    driver.fails = True
    with pytest.raises(DriverError):
        await faults.inject(link.Freeze("replica-1"))
    assert faults._history.pairs("fault")[0].phase == "info"
    driver.fails = False
    await faults.undo_all()
    assert said[-1] == "heal replica-1"
    assert faults.active == []


async def test_undo_all_goes_backwards_and_tries_each(
    faults: Faults, driver: FakeDriver, said: list[str]
) -> None:
    await faults.inject(link.Freeze("replica-1"))
    await faults.inject(redis.Pause())
    said.clear()
    driver.fails = True
    with pytest.raises(DriverError):
        await faults.undo_all()
    assert said == ["resume redis", "heal replica-1"]
    driver.fails = False
    await faults.undo_all()
    assert faults.active == []


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda r: process.Kill(r), ["kill replica-1-a", "launch replica-1", "wait replica-1"]),
        (lambda r: process.Terminate(r), ["terminate replica-1-a", "launch replica-1", "wait replica-1"]),
        (lambda r: process.Pause(r), ["pause replica-1-a", "resume replica-1-a"]),
        (lambda r: link.Cut("l"), ["cut l"]),
        (lambda r: link.Down("l"), ["refuse l", "cut l", "heal l"]),
        (lambda r: link.Blackhole("l", "up"), ["blackhole-up l", "heal l"]),
        (lambda r: link.Slow("l", delay_ms=5), ["slow-5-0 l", "heal l"]),
        (lambda r: redis.Kill(keep=True), ["redis-kill redis", "start keep=True redis"]),
        (lambda r: redis.Pause(), ["redis-pause redis", "resume redis"]),
    ],
)
async def test_what_each_does_and_undoes(
    make: Any, expected: list[str], faults: Faults, driver: FakeDriver, said: list[str]
) -> None:
    fault: Fault = make(replica_of(driver))
    await faults.inject(fault)
    await faults.undo(fault)
    await faults.undo(fault)
    assert [line for line in said if line not in ("journal", "done")] == expected


async def test_a_replica_that_was_killed_while_stopped_is_not_woken(
    faults: Faults, driver: FakeDriver, said: list[str]
) -> None:
    replica = replica_of(driver)
    pause = process.Pause(replica)
    await faults.inject(pause)
    kill = process.Kill(replica)
    await faults.inject(kill)
    await faults.undo(kill)
    replica.state = "paused"  # by somebody else, who will wake it
    said.clear()
    await faults.undo(pause)
    assert said == []


async def test_a_roll_takes_one_after_the_other(faults: Faults, said: list[str]) -> None:
    evidence = await faults.inject(process.Roll())
    assert said == ["terminate replica-1-a", "launch replica-1", "terminate replica-2-a", "launch replica-2"]
    assert [step["target"] for step in evidence.proof["steps"]] == ["replica-1-a", "replica-2-a"]
