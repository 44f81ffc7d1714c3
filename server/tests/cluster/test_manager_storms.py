"""Traffic between two nodes while Redis has a bad time: each event once, in order, or said to be lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable

from moorage.errors import BackplaneError

from ..valkey import Valkey
from .nodes import FakeSocket, Node

StartNode = Callable[..., Awaitable[Node]]
Until = Callable[..., Awaitable[None]]


class Traffic:
    """Both nodes emit numbers to everybody until :meth:`end`."""

    def __init__(self, nodes: list[Node], sockets: list[FakeSocket]) -> None:
        self.nodes, self.sockets = nodes, sockets
        self.sent = [0, 0]
        self.counted: list[int] = []
        self.running = True
        self.tasks = [asyncio.create_task(self.emit(i)) for i in (0, 1)]
        self.tasks.append(asyncio.create_task(self.count()))

    async def emit(self, who: int) -> None:
        while self.running:
            for _ in range(5):
                self.nodes[who].manager.emit_now("e", [who, self.sent[who]], ["all"])
                self.sent[who] += 1
            await asyncio.sleep(0.001)

    async def count(self) -> None:
        while self.running:
            try:
                self.counted.append(await self.nodes[0].manager.emit_counted("k", "update", {}, ["all"]))
            except BackplaneError:
                pass  # it may have happened
            await asyncio.sleep(0.002)

    async def end(self, until: Until) -> None:
        self.running = False
        await asyncio.gather(*self.tasks)
        await until(lambda: not any(node.manager.writer.pending for node in self.nodes))
        for node in self.nodes:
            node.manager.emit_now("end", [], ["all"])
        await until(lambda: all(s.events.count("end") == 2 for s in self.sockets))

    def numbers(self, socket: FakeSocket, who: int) -> list[int]:
        return [event[2] for event in socket.got if event[:2] == ["e", who]]

    def check_events(self) -> None:
        for socket in self.sockets:
            for who in (0, 1):
                assert self.numbers(socket, who) == list(range(self.sent[who]))


async def begin(start_node: StartNode, url: str | None = None) -> Traffic:
    nodes = [await start_node(url), await start_node(url)]
    return Traffic(nodes, [await node.client(f"s{i}", "all") for i, node in enumerate(nodes)])


def updates(socket: FakeSocket) -> list[int]:
    return [event[1]["seq"] for event in socket.got if event[0] == "update"]


async def test_kills_of_all_connections(start_node: StartNode, valkey: Valkey, until: Until) -> None:
    traffic = await begin(start_node)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(50):
        valkey.kill_clients("pubsub" if number % 5 == 0 else "normal")
        await asyncio.sleep(0.01)
    await traffic.end(until)
    traffic.check_events()
    # A count whose answer was lost may have happened: the numbers stay dense, and in one order for all.
    assert updates(traffic.sockets[0]) == updates(traffic.sockets[1])
    assert updates(traffic.sockets[0]) == list(range(1, len(updates(traffic.sockets[0])) + 1))
    assert set(traffic.counted) <= set(updates(traffic.sockets[0]))
    assert all(node.manager.writer.possibly_lost == 0 for node in traffic.nodes)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_restart_with_the_data_kept(
    start_node: StartNode, valkey_factory: Callable[..., Valkey], until: Until
) -> None:
    kept = valkey_factory(aof=True)
    traffic = await begin(start_node, kept.url)
    for _ in range(2):
        await asyncio.sleep(0.1)
        kept.kill()
        await asyncio.sleep(0.05)
        kept.start()
        await until(lambda: all(node.backplane.available for node in traffic.nodes))
    await asyncio.sleep(0.1)
    await traffic.end(until)
    traffic.check_events()
    assert (
        updates(traffic.sockets[0]) == updates(traffic.sockets[1]) == sorted(set(updates(traffic.sockets[0])))
    )


async def test_restart_with_the_data_wiped(start_node: StartNode, valkey: Valkey, until: Until) -> None:
    traffic = await begin(start_node)
    await asyncio.sleep(0.1)
    valkey.kill()
    await until(lambda: not any(node.backplane.available for node in traffic.nodes))
    kept_since = list(traffic.sent)
    await asyncio.sleep(0.05)
    valkey.start()
    await until(lambda: all(node.backplane.available for node in traffic.nodes))
    await traffic.end(until)
    for index, socket in enumerate(traffic.sockets):
        assert traffic.numbers(socket, index) == list(range(traffic.sent[index]))  # here, always all
        other = 1 - index
        far = traffic.numbers(socket, other)
        assert far == sorted(set(far))
        # What was appended just before may be gone, unread; what waited for Redis is not.
        assert far[-1 - (traffic.sent[other] - 1 - kept_since[other]) :] == list(
            range(kept_since[other], traffic.sent[other])
        )


async def test_freeze(start_node: StartNode, valkey: Valkey, until: Until) -> None:
    traffic = await begin(start_node)
    for seconds in (0.05, 0.6):  # within and beyond the bound of a reply
        await asyncio.sleep(0.05)
        valkey.freeze()
        sent = traffic.sent[0]
        await asyncio.sleep(seconds)
        assert traffic.sent[0] > sent  # nobody waited
        assert traffic.numbers(traffic.sockets[0], 0)[-1] == traffic.sent[0] - 1
        valkey.thaw()
        await until(lambda: all(node.backplane.available for node in traffic.nodes))
    await traffic.end(until)
    traffic.check_events()
