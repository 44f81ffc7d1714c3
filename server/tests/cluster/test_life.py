"""The manager's life: whatever is done first starts it, a stop writes what it can, and nothing ends without a word."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
import socketio

from moorage.cluster import RedisStreamsManager
from moorage.storage.backplane import Backplane

from ..conftest import WAIT_S
from ..valkey import Valkey, free_port
from .nodes import FakeSocket, Node

Until = Callable[..., Awaitable[None]]
StartNode = Callable[..., Awaitable[Node]]
SECRET = "a key of the tests, long enough to sign"


class Fresh:
    """A server with a manager that nobody has started."""

    def __init__(self, redis: str | Backplane, **options: Any) -> None:
        self.manager = RedisStreamsManager(redis, **options)
        self.server = socketio.AsyncServer(client_manager=self.manager, async_mode="asgi")


@pytest_asyncio.fixture
async def fresh(valkey: Valkey) -> AsyncIterator[Fresh]:
    fresh = Fresh(valkey.url)
    yield fresh
    await fresh.manager.stop()


def entries(valkey: Valkey) -> int:
    return int(valkey.client.xlen("socket.io"))


# -- what starts it ------------------------------------------------------------------------------------
@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question waits for the start however long a busy machine takes for it: who asks too early asks nobody."""
    monkeypatch.setattr("moorage.cluster.manager.START_S", WAIT_S)


async def test_an_emit_starts_it(fresh: Fresh, start_node: StartNode, until: Until) -> None:
    there = await (await start_node()).client("t")
    for number in range(100):
        await fresh.server.emit("e", number)
    await until(lambda: [event[1] for event in there.got] == [*range(100)])
    assert await fresh.manager.start()  # it is already


async def test_a_stop_right_after_emits_writes_them(valkey: Valkey) -> None:
    for options in ({}, {"recovery_secret": SECRET}):
        valkey.client.flushall()
        fresh = Fresh(valkey.url, **options)
        for number in range(100):
            await fresh.server.emit("e", number)
        await fresh.manager.stop()
        sent = [fields for _, fields in valkey.client.xrange("socket.io") if fields[b"type"] == b"3"]
        assert len(sent) == 100
        assert fresh.manager.writer.dropped == 0


@pytest.mark.usefixtures("patient")
async def test_a_question_starts_it(fresh: Fresh, start_node: StartNode) -> None:
    node = await start_node()
    await node.client("t", "room")
    node.manager.on("ask", lambda: "answer")
    found = await fresh.manager.in_("room").fetch_sockets()
    assert [socket.id for socket in found] == ["t"]
    assert found.complete


@pytest.mark.usefixtures("patient")
async def test_other_questions_start_it(valkey: Valkey, start_node: StartNode, until: Until) -> None:
    node = await start_node()
    there = await node.client("t", "room")
    told: list[int] = []
    node.manager.on("ask", lambda: "answer")
    node.manager.on("tell", told.append)

    async def ack() -> None:
        await until(lambda: there.asked)
        await there.ack("yes")

    async def asked(manager: RedisStreamsManager) -> object:
        return await manager.server_side_emit_with_ack("ask")

    async def acked(manager: RedisStreamsManager) -> object:
        values, _ = await asyncio.gather(manager.to("room").emit_with_ack("e"), ack())
        return values

    async def called(manager: RedisStreamsManager) -> object:
        value, _ = await asyncio.gather(manager.server.call("e", to="t", timeout=10), ack())
        return [value]

    async def tell(manager: RedisStreamsManager) -> object:
        await manager.server_side_emit("tell", 1)
        await until(lambda: told)
        return told

    for question, answer in ((asked, ["answer"]), (acked, ["yes"]), (called, ["yes"]), (tell, [1])):
        fresh = Fresh(valkey.url)
        assert await question(fresh.manager) == answer
        await fresh.manager.stop()


async def test_with_redis_away_a_question_waits_once_and_not_long() -> None:
    fresh = Fresh(f"redis://127.0.0.1:{free_port()}")
    async with asyncio.timeout(10):
        for _ in range(20):  # 20 s if each of them waited
            assert not (await fresh.manager.fetch_sockets()).complete
    await fresh.manager.stop()


# -- stop ----------------------------------------------------------------------------------------------
async def test_a_stop_with_redis_away_says_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    fresh = Fresh(f"redis://127.0.0.1:{free_port()}")
    for number in range(7):
        await fresh.server.emit("e", number)
    async with asyncio.timeout(10):
        await fresh.manager.stop()
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text for text in told if "not written" in text] == [
        "stopped: 7 cluster messages were not written to redis, of 0 more it is not known"
    ]
    assert fresh.manager.writer.dropped == 7


async def test_what_redis_takes_within_the_bound_is_written(valkey: Valkey, until: Until) -> None:
    fresh = Fresh(valkey.url)
    assert await fresh.manager.start()
    valkey.freeze()
    try:
        await fresh.server.emit("e", 1)
        stopping = asyncio.create_task(fresh.manager.stop())
        await until(lambda: fresh.manager._stopped)
    finally:
        valkey.thaw()
    await asyncio.wait_for(stopping, 10)
    assert entries(valkey) == 1
    assert (fresh.manager.writer.dropped, fresh.manager.writer.possibly_lost) == (0, 0)


async def test_a_stop_that_has_nothing_to_write_says_nothing(
    valkey: Valkey, caplog: pytest.LogCaptureFixture
) -> None:
    fresh = Fresh(valkey.url, recovery_secret=SECRET)
    await fresh.manager.stop()
    assert await fresh.manager.start()
    await fresh.server.emit("e", 1)
    await fresh.manager.stop()
    await fresh.manager.stop()
    assert "not written" not in caplog.text


@pytest.mark.parametrize("secret", [None, SECRET])
async def test_after_a_stop_an_emit_reaches_this_process_and_says_so_once(
    valkey: Valkey, start_node: StartNode, caplog: pytest.LogCaptureFixture, secret: str | None, until: Until
) -> None:
    node = await start_node(recovery_secret=secret)
    other = await (await start_node(recovery_secret=secret)).client("t")
    here = await node.client("s")
    await node.manager.stop()
    before = entries(valkey)
    await node.server.emit("e", 1)
    await node.server.emit("e", 2)
    assert [event[:2] for event in here.got] == [["e", 1], ["e", 2]]
    assert node.manager.writer.dropped == 2
    assert caplog.text.count("is stopped") == 1
    assert entries(valkey) == before
    async with asyncio.timeout(5):
        found = await node.manager.fetch_sockets()
        assert [socket.id for socket in found] == ["s"]
        assert not found.complete
        assert not (await node.manager.server_side_emit_with_ack("ask")).complete
    assert await node.manager.start()
    await node.server.emit("e", 3)
    await until(lambda: [event[:2] for event in other.got] == [["e", 3]])
    await until(lambda: [event[:2] for event in here.got][2:] == [["e", 3]])


CUT_SHORT = """
import asyncio, socketio
from moorage.cluster import RedisStreamsManager
async def main():
    server = socketio.AsyncServer(client_manager=RedisStreamsManager("redis://127.0.0.1:%d"), async_mode="asgi")
    for number in range(5):
        await server.emit("e", number)
asyncio.run(main())
"""


async def test_a_loop_that_ends_without_a_stop_says_what_is_lost() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CUT_SHORT % free_port(), stderr=subprocess.PIPE
    )
    _, text = await asyncio.wait_for(process.communicate(), 30)
    assert b"5 cluster messages were not written" in text
    assert b"was destroyed" not in text
    assert process.returncode == 0


# -- a start that fails --------------------------------------------------------------------------------
async def test_a_failed_start_leaves_nothing_behind(
    valkey: Valkey, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = Fresh(valkey.url)

    def refuse(namespace: str) -> None:
        raise ValueError("no such channel")

    with monkeypatch.context() as patch:
        patch.setattr(fresh.manager.requests, "open", refuse)
        with pytest.raises(ValueError, match="no such channel"):
            await fresh.manager.start()
    gc.collect()
    assert "was destroyed" not in caplog.text
    mine = {task.get_name() for task in asyncio.all_tasks()}
    assert not [name for name in mine if name.startswith("stream-")]
    assert await fresh.manager.start()
    await fresh.manager.stop()


async def test_a_start_that_comes_late(valkey: Valkey, until: Until) -> None:
    valkey.kill()
    fresh = Fresh(valkey.url)
    assert not await fresh.manager.start(0.05)
    assert not await fresh.manager.start(0.05)
    await fresh.server.emit("e", 1)
    valkey.start()
    await until(lambda: entries(valkey) == 1)
    assert await fresh.manager.start()
    await fresh.manager.stop()


async def test_a_stop_during_a_start(valkey: Valkey) -> None:
    fresh = Fresh(f"redis://127.0.0.1:{free_port()}")
    starting = asyncio.create_task(fresh.manager.start())
    await asyncio.sleep(0)
    await fresh.manager.stop()
    assert await asyncio.wait_for(starting, 5) is False


# -- with recovery -------------------------------------------------------------------------------------
async def test_the_first_client_waits_for_its_place(valkey: Valkey) -> None:
    valkey.client.xadd("socket.io", {"uid": "0", "nsp": "/", "type": "1"})
    fresh = Fresh(valkey.url, recovery_secret=SECRET)
    recovery = fresh.manager.recovery
    assert recovery is not None
    fresh.manager.initialize()  # as its first transport does
    # Of a node it uses what a Fresh has, too.
    socket = FakeSocket(fresh, "s")  # type: ignore[arg-type]
    fresh.server.eio.sockets["eio-s"] = socket
    assert await recovery.admit("eio-s", "/", None, "u") is None
    fresh.manager.basic_pre_connect("eio-s", "/", "s")
    pid = recovery._pids.read(recovery.connected("/", "s", aware=True, identity="u")["pid"])
    assert pid is not None
    assert pid.start == valkey.client.xinfo_stream("socket.io")["last-generated-id"]
    await fresh.manager.stop()


async def test_the_first_client_of_a_stream_waits_for_its_place(valkey: Valkey) -> None:
    fresh = Fresh(valkey.url, recovery_secret=SECRET, stream_count=4)
    assert await fresh.manager.start()
    recovery = fresh.manager.recovery
    assert recovery is not None
    for number in range(12):
        namespace = f"/{number}"
        stream = fresh.manager._stream(namespace)
        valkey.client.xadd(stream, {"uid": "0", "nsp": namespace, "type": "1"})
        assert await recovery.admit(f"eio{number}", namespace, None, "u") is None
        assert fresh.manager.reader.origin(stream) is not None
        fresh.manager.basic_pre_connect(f"eio{number}", namespace, f"s{number}")
        assert recovery.connected(namespace, f"s{number}", aware=True, identity="u").keys() == {"pid"}
    await fresh.manager.stop()


async def test_with_redis_away_there_is_no_private_id(until: Until) -> None:
    backplane = Backplane(f"redis://127.0.0.1:{free_port()}", name="away")
    node = Fresh(backplane, recovery_secret=SECRET)
    recovery = node.manager.recovery
    assert recovery is not None
    node.manager.initialize()
    async with asyncio.timeout(10):
        for number in range(20):  # only the first ones wait
            assert await recovery.admit(f"eio{number}", "/", {"pid": "x"}, "u") is None
    node.manager.basic_pre_connect("eio", "/", "s")
    assert recovery.connected("/", "s", aware=True, identity="u") == {}
    assert "s" in recovery.unaware  # so it is sent no offsets
    await node.manager.stop()
