"""The local driver over stand-in replicas: lives, deaths, evidence, links, the start state."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from moorage_chaos.drivers import procfs
from moorage_chaos.drivers.base import DriverError, Setup
from moorage_chaos.drivers.local import LocalDriver
from moorage_chaos.drivers.probe import get

from .conftest import Make


async def say(url: str, line: str) -> bytes:
    host, port = url.removeprefix("http://").split(":")
    async with asyncio.timeout(5):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(line.encode() + b"\r\n")
        try:
            return await reader.read(100)
        finally:
            writer.close()


async def who(url: str) -> str:
    return (await get(url + "/who", timeout_s=5))[1].decode()


Seen = list[tuple[str, dict[str, Any]]]


def watch(driver: LocalDriver) -> Seen:
    seen: Seen = []
    driver.listeners.append(lambda op, t, value: seen.append((op, value)))
    return seen


def lives(seen: Seen) -> Seen:
    """Without what the front found: it may find a port closed before the parent of its process tells the end."""
    return [(op, value) for op, value in seen if op != "draining"]


async def test_it_starts_replicas_that_are_reached_by_every_way(make: Make) -> None:
    driver = await make()
    ids = {replica.id for replica in driver.replicas}
    assert [replica.link for replica in driver.replicas] == ["replica-1", "replica-2"]
    assert {(await who(driver.url)).split()[0] for _ in range(2)} == ids
    for replica in driver.replicas:
        assert await who(replica.url) == await who(replica.direct_url) == f"{replica.id} moorage serve"
        assert driver.replica(replica.id) is replica
        assert (await driver.metrics(replica))["x"] == 5
        assert await say(replica.url, "PING") == b"+PONG\r\n"


async def test_the_callers_own_settings_do_not_leak_in(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATE_URL", "redis://elsewhere")
    monkeypatch.setenv("MOORAGE_DRAIN_MS", "1")
    driver = await make(Setup(replicas=1, env={"FROM_ROW": "yes"}))
    environment = driver._environment({"X": "1"})
    assert not {"STATE_URL", "MOORAGE_DRAIN_MS"} & set(environment)
    assert environment["X"] == "1"


async def test_kill_proves_itself_and_launch_brings_another_generation(make: Make) -> None:
    driver = await make()
    seen = watch(driver)
    replica, other = driver.replicas
    first = replica.id
    evidence = await driver.kill(replica)
    assert evidence.proof["exitCode"] == -9
    assert evidence.proof["goneNs"] > evidence.t_ns
    assert procfs.state(evidence.proof["pid"]) == ""
    assert replica.state == "dead"
    assert await who(driver.url) == await who(driver.url) == f"{other.id} moorage serve"
    with pytest.raises(DriverError, match="does not run"):
        await driver.kill(replica)
    await driver.launch(replica)
    assert (replica.generation, replica.state) == (2, "ready")
    assert replica.id != first
    assert driver.replica(first) is driver.replica(replica.id) is replica
    death, alive = lives(seen)
    assert death == ("death", {"replica": first, "link": "replica-1", "code": -9, "asked": True})
    assert alive == ("alive", {"replica": replica.id, "link": "replica-1"})
    await driver.kill(replica)
    await driver.launch(replica, replica_id=first)
    assert (replica.id, replica.generation) == (first, 3)


async def test_a_death_that_nobody_asked_for_is_told_as_such(make: Make) -> None:
    driver = await make()
    seen = watch(driver)
    replica = driver.replicas[0]
    os.kill(replica.pid, 9)
    async with asyncio.timeout(5):
        await replica.process.ended.wait()
    told = {"replica": replica.id, "link": "replica-1", "code": -9, "asked": False}
    assert lives(seen) == [("death", told)]
    with pytest.raises(DriverError, match="is dead"):
        await driver.wait_ready()


async def test_terminate_waits_for_the_drain(make: Make, tmp_path: Path) -> None:
    drained = tmp_path / "drained"
    driver = await make(Setup(replicas=2, env={"STAND_IN_DRAIN_UNTIL": str(drained)}))
    seen = watch(driver)
    terminating = asyncio.create_task(driver.terminate(driver.replicas[0]))
    async with asyncio.timeout(20):
        while not seen:
            await asyncio.sleep(0.01)
    assert not terminating.done()
    drained.touch()
    assert (await terminating).proof["exitCode"] == 0
    assert [op for op, _ in seen] == ["draining", "death"]


async def test_terminate_has_a_bound(make: Make, tmp_path: Path) -> None:
    driver = await make(Setup(replicas=1, env={"STAND_IN_DRAIN_UNTIL": str(tmp_path / "never")}))
    with pytest.raises(DriverError, match="did not end within"):
        await driver.terminate(driver.replicas[0], 0.1)


async def test_pause_and_resume(make: Make) -> None:
    driver = await make()
    replica = driver.replicas[0]
    evidence = await driver.pause(replica)
    assert evidence.proof["state"] == "T" == procfs.state(replica.pid)
    assert replica.state == "paused"
    await driver.resume(replica)
    assert (await who(replica.direct_url)).startswith(replica.id)


async def test_a_server_that_does_not_start_is_told_at_once(make: Make) -> None:
    with pytest.raises(DriverError, match="exit code 7"):
        await make(Setup(replicas=1, env={"STAND_IN_EXIT": "7"}))


async def test_redis_is_killed_wiped_kept_and_frozen(make: Make) -> None:
    driver = await make(Setup(replicas=1, redis_keep=True))
    replica = driver.replicas[0]
    url = f"http://127.0.0.1:{driver.redis.url.rpartition(':')[2]}"
    assert await say(url, "SET a 1") == b"+OK\r\n"
    evidence = await driver.redis.kill()
    assert evidence.proof["exitCode"] == -9
    assert evidence.proof["refused"]
    assert await say(replica.direct_url, "PING") == b""
    await driver.redis.start(keep=True)
    assert await say(url, "GET a") == b"$1\r\n1\r\n"
    await driver.redis.kill()
    await driver.redis.start(keep=False)
    assert await say(url, "GET a") == b"$-1\r\n"
    assert (await driver.redis.pause()).proof["state"] == "T"
    await driver.redis.resume()
    assert await say(url, "PING") == b"+PONG\r\n"


async def test_redis_links_lead_through_the_front(make: Make) -> None:
    driver = await make(Setup(replicas=2, redis_links=True))
    one, two = driver.replicas
    await driver.links.refuse("replica-1:redis")
    assert await say(one.direct_url, "PING") == b""
    assert await say(two.direct_url, "PING") == b"+PONG\r\n"


async def test_restore_brings_everything_back(make: Make) -> None:
    driver = await make(Setup(replicas=3, redis_links=True))
    one, two, three = driver.replicas
    await driver.kill(one)
    await driver.pause(two)
    await driver.links.blackhole("replica-3")
    await driver.redis.kill()
    await driver.restore(20)
    assert {replica.state for replica in driver.replicas} == {"ready"}
    assert await say(one.url, "PING") == await say(three.url, "PING") == b"+PONG\r\n"


async def test_restore_wants_equal_registries(make: Make) -> None:
    driver = await make()
    driver.setup = Setup(replicas=2, env={"STAND_IN_REGISTRATIONS": "5"})
    await driver.kill(driver.replicas[0])
    await driver.launch(driver.replicas[0])
    with pytest.raises(DriverError, match=r"not back within|did not agree"):
        await driver.restore(0.4)


async def test_restore_waits_until_nobody_is_degraded(make: Make, tmp_path: Path) -> None:
    mark = tmp_path / "degraded"
    driver = await make(Setup(replicas=2, env={"STAND_IN_DEGRADED": str(mark)}))
    mark.touch()
    with pytest.raises(DriverError, match=r"not back within|did not agree"):
        await driver.restore(0.4)
    restoring = asyncio.create_task(driver.restore(20))
    mark.unlink()
    await restoring


async def test_a_socket_is_found_by_the_connect_line(make: Make) -> None:
    driver = await make()
    await say(driver.replicas[1].url, "SID abc123")
    assert await driver.replica_of("abc123") is driver.replicas[1]
    with pytest.raises(KeyError):
        await driver.replica_of("nobody")


async def test_workers_run_beside_the_replicas_and_die_alike(make: Make) -> None:
    driver = await make(Setup(replicas=1, workers=2))
    seen = watch(driver)
    one, two = driver.workers
    assert [worker.link for worker in driver.workers] == ["worker-1", "worker-2"]
    assert {worker.state for worker in driver.workers} == {"ready"}
    assert (await who(driver.url)).split()[0] == driver.replicas[0].id, "the front never leads to a worker"
    first = one.id
    assert (await driver.kill(one)).proof["exitCode"] == -9
    assert (await driver.pause(two)).proof["state"] == "T"
    assert lives(seen) == [("death", {"replica": first, "link": "worker-1", "code": -9, "asked": True})]
    await driver.restore(20)
    assert (one.generation, one.state, two.state) == (2, "ready", "ready")
    assert await driver.told(one, "WORKER ") == [f"{first} moorage worker", f"{one.id} moorage worker"]


async def test_the_state_has_a_redis_of_its_own_if_asked(make: Make) -> None:
    driver = await make(Setup(replicas=1, workers=1, state_redis=True))
    events, state = (
        await driver.told(driver.workers[0], "REDIS "),
        await driver.told(driver.workers[0], "STATE "),
    )
    assert events == [driver.redis.url]
    assert state[0] not in ("", driver.redis.url)
    await driver.redis.kill()
    assert await say(state[0].replace("redis", "http"), "PING") == b"+PONG\r\n"
    await driver.start(Setup(replicas=1, workers=1))
    assert (await driver.told(driver.workers[0], "STATE "))[-1] == ""


async def test_a_door_cuts_its_own_clients_only(make: Make) -> None:
    driver = await make()
    door = await driver.door("client-7")
    assert door == await driver.door("client-7")
    assert {(await who(door)).split()[0] for _ in range(2)} == {replica.id for replica in driver.replicas}
    await driver.links.refuse("client-7")
    try:
        assert await say(door, "PING") == b""
    except ConnectionResetError:
        pass  # whichever is seen first
    assert await say(driver.url, "PING") == b"+PONG\r\n"
    await driver.restore(20)
    assert await say(door, "PING") == b"+PONG\r\n"


async def test_an_external_redis_is_not_touched(make: Make) -> None:
    home = await make(Setup(replicas=1))
    driver = await make(Setup(replicas=1), redis_url=home.redis.url, name="other")
    assert "redis-kill" not in driver.can
    assert await say(driver.replicas[0].url, "PING") == b"+PONG\r\n"
    with pytest.raises(DriverError):
        await driver.redis.kill()
    with pytest.raises(DriverError):
        await driver.start(Setup(redis_links=True))


async def test_stop_leaves_no_process_and_no_folder(make: Make) -> None:
    driver = await make()
    temp = driver._temp
    await driver.start(Setup(replicas=1, redis_keep=True))
    await driver.stop()
    assert temp is not None
    assert not temp.exists()
    assert list(procfs.tagged(driver._tag)) == []
