"""Wires of network namespaces: what is lost, which way, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from moorage_chaos.drivers import namespaces
from moorage_chaos.drivers.namespaces import Direction, Namespaces, Wire
from moorage_chaos.faults.journal import undo

pytestmark = pytest.mark.skipif(
    not namespaces.available(), reason="needs root and iproute2 (apt-get install iproute2), in no container"
)

ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 0))
print(server.getsockname()[1], flush=True)
while True:
    connection, _ = server.accept()
    while data := connection.recv(100):
        print("got", data.decode(), flush=True)
        connection.sendall(data)
"""
ARRIVES_S = 10.0
LOST_S = 0.3
"""What has not come by then on a wire of one machine is lost; TCP sends it again when the wire is whole."""


class Undone:
    """A journal in memory."""

    def __init__(self) -> None:
        self.open: dict[int, dict[str, object]] = {}

    def write(self, record: dict[str, object]) -> int:
        self.open[len(self.open) + 1] = record
        return len(self.open)

    def done(self, number: int) -> None:
        del self.open[number]


def existing() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines() if line}


@dataclass
class Talk:
    """A connection from the host to an echo inside."""

    wire: Wire
    echo: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def say(self, text: str) -> None:
        self.writer.write(text.encode())

    async def heard(self, within_s: float = ARRIVES_S) -> str | None:
        """What the echo got next."""
        assert self.echo.stdout is not None
        try:
            async with asyncio.timeout(within_s):
                return (await self.echo.stdout.readline()).decode().strip().removeprefix("got ")
        except TimeoutError:
            return None

    async def answer(self, within_s: float = ARRIVES_S) -> str | None:
        try:
            async with asyncio.timeout(within_s):
                return (await self.reader.read(100)).decode()
        except TimeoutError:
            return None


@pytest.fixture
async def system() -> AsyncIterator[tuple[Namespaces, Undone]]:
    journal = Undone()
    made = Namespaces(journal)
    await made.add("replica-1")
    yield made, journal
    await made.remove()


@pytest.fixture
async def talk(system: tuple[Namespaces, Undone]) -> AsyncIterator[Talk]:
    wire = system[0].clients["replica-1"]
    inside = ("ip", "netns", "exec", wire.namespace, sys.executable, "-c", ECHO, wire.inside)
    echo = await asyncio.create_subprocess_exec(*inside, stdout=asyncio.subprocess.PIPE)
    assert echo.stdout is not None
    async with asyncio.timeout(ARRIVES_S):
        port = int(await echo.stdout.readline())
        reader, writer = await asyncio.open_connection(wire.inside, port)
    talk = Talk(wire, echo, reader, writer)
    talk.say("one")
    assert (await talk.heard(), await talk.answer()) == ("one", "one")
    yield talk
    writer.close()
    echo.kill()
    await echo.wait()


@pytest.mark.parametrize(("direction", "arrives"), [("both", None), ("up", None), ("down", "two")])
async def test_a_direction_is_lost_in_silence_and_comes_back_when_the_wire_is_whole(
    system: tuple[Namespaces, Undone], talk: Talk, direction: Direction, arrives: str | None
) -> None:
    evidence = await system[0].lose("replica-1", direction)
    assert evidence.proof["by"] == "the kernel"
    talk.say("two")
    assert await talk.heard(ARRIVES_S if arrives else LOST_S) == arrives
    assert await talk.answer(LOST_S) is None
    await talk.wire.heal()
    await talk.wire.heal()  # twice does no harm
    if arrives is None:
        assert await talk.heard() == "two"
    assert await talk.answer() == "two"


async def test_up_on_the_wire_to_redis_is_what_the_replica_sends(system: tuple[Namespaces, Undone]) -> None:
    nets, _ = system
    assert nets.wires.keys() == {"replica-1", "replica-1:redis"}
    await nets.lose("replica-1:redis", "up")
    assert nets.redis["replica-1"].cut == {"inside"}
    await nets.lose("replica-1", "up")
    assert nets.clients["replica-1"].cut == {"host"}


async def test_nothing_stays_behind_and_the_journal_knows_until_then() -> None:
    journal = Undone()
    made = Namespaces(journal)
    await made.add("replica-1")
    [record] = journal.open.values()
    assert record["name"] in existing()
    await made.remove()
    assert record["name"] not in existing()
    assert journal.open == {}


async def test_recover_removes_what_a_dead_harness_left_and_only_that() -> None:
    journal = Undone()
    await Namespaces(journal).add("replica-1")
    [record] = journal.open.values()
    assert "removed" in undo(record)
    assert record["name"] not in existing()
    assert "gone" in undo(record)
    assert "not ours" in undo({"do": "netns", "name": "default"})
