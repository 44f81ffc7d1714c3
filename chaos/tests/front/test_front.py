"""The front as a process, between real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from moorage_chaos.drivers.base import DriverError
from moorage_chaos.front_control import FrontControl

BOUND = 5.0


class Target:
    """A replica reduced to its socket: answers /ready, echoes everything else with its name in front."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready = True
        self.open: set[asyncio.StreamWriter] = set()
        self.ended = asyncio.Event()
        self.server: asyncio.Server

    async def start(self) -> tuple[str, int]:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self.server.sockets[0].getsockname()
        return host, port

    async def stop(self) -> None:
        self.server.close()
        for writer in list(self.open):
            writer.transport.abort()
        await self.server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while data := await reader.read(65536):
                if data.startswith(b"GET /ready"):
                    status = b"200 OK" if self.ready else b"503 no"
                    writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
                    break
                writer.write(self.name.encode() + b":" + data)
        except ConnectionError:
            pass
        finally:
            self.open.discard(writer)
            writer.close()
            self.ended.set()


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[FrontControl]:
    control = FrontControl()
    await control.start(tmp_path / "front.log")
    yield control
    await control.stop()
    assert (tmp_path / "front.log").read_text() == ""


@pytest.fixture
async def target() -> AsyncIterator[Target]:
    one = Target("a")
    await one.start()
    yield one
    await one.stop()


def address(target: Target) -> tuple[str, int]:
    host, port = target.server.sockets[0].getsockname()
    return host, port


Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[int], Awaitable[Pair]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    writers: list[asyncio.StreamWriter] = []

    async def connect(port: int) -> Pair:
        async with asyncio.timeout(BOUND):
            pair = await asyncio.open_connection("127.0.0.1", port)
        writers.append(pair[1])
        return pair

    yield connect
    for writer in writers:
        writer.close()


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: bytes = b"hi") -> bytes:
    writer.write(text)
    async with asyncio.timeout(BOUND):
        return await reader.read(65536)


async def is_reset(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(BOUND):
            return await reader.read(1) != b""
    except ConnectionResetError:
        return True


async def is_refused(dial: Dial, port: int) -> bool:
    """Reset at once, during the connect or just after it."""
    try:
        reader, _ = await dial(port)
    except ConnectionResetError:
        return True
    return await is_reset(reader)


async def until_connections(front: FrontControl, link: str, count: int) -> None:
    async with asyncio.timeout(BOUND):
        while await front.connections(link) != count:
            await asyncio.sleep(0.01)


async def until_ready(front: FrontControl, names: set[str]) -> None:
    async with asyncio.timeout(BOUND):
        while {name for name, link in (await front.status()).items() if link["ready"]} != names:
            await asyncio.sleep(0.02)


async def test_it_copies_both_ways_and_passes_the_end_on(
    front: FrontControl, dial: Dial, target: Target
) -> None:
    port = await front.link("a", address(target))
    reader, writer = await dial(port)
    assert await ask(reader, writer) == b"a:hi"
    target.ended.clear()
    writer.close()
    async with asyncio.timeout(BOUND):
        await target.ended.wait()
    await until_connections(front, "a", 0)


async def test_a_large_stream_arrives_whole(front: FrontControl, dial: Dial) -> None:
    got = bytearray()
    done = asyncio.Event()

    async def sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            got.extend(data)
        writer.close()
        done.set()

    server = await asyncio.start_server(sink, "127.0.0.1", 0)
    port = await front.link("sink", server.sockets[0].getsockname())
    _, writer = await dial(port)
    sent = bytes(range(256)) * 40_000
    writer.write(sent)
    await writer.drain()
    writer.close()
    async with asyncio.timeout(20):
        await done.wait()
    assert bytes(got) == sent
    server.close()


async def test_the_service_goes_round_over_ready_replicas_only(front: FrontControl, dial: Dial) -> None:
    targets = [Target(name) for name in "abc"]
    for one in targets:
        await one.start()
        await front.link(one.name, address(one), member=True)
    port = await front.service()
    await until_ready(front, {"a", "b", "c"})
    first = [(await ask(*await dial(port)))[:1] for _ in range(6)]
    assert sorted(first) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    targets[1].ready = False
    await until_ready(front, {"a", "c"})
    assert {(await ask(*await dial(port)))[:1] for _ in range(4)} == {b"a", b"c"}
    # One that refuses connections is left out in the very attempt that finds it.
    await targets[0].stop()
    assert [(await ask(*await dial(port)))[:1] for _ in range(4)] == [b"c"] * 4
    await targets[2].stop()
    assert await is_refused(dial, port)
    await targets[1].stop()


async def test_cut_resets_and_lets_new_ones_in(front: FrontControl, dial: Dial, target: Target) -> None:
    port = await front.link("a", address(target))
    reader, writer = await dial(port)
    await ask(reader, writer)
    target.ended.clear()
    evidence = await front.cut("a")
    assert evidence.proof["connections"] == 1
    assert await is_reset(reader)
    async with asyncio.timeout(BOUND):
        await target.ended.wait()
    assert await ask(*await dial(port)) == b"a:hi"


async def test_refuse_keeps_old_ones_and_resets_new_ones(
    front: FrontControl, dial: Dial, target: Target
) -> None:
    port = await front.link("a", address(target))
    reader, writer = await dial(port)
    await ask(reader, writer)
    await front.refuse("a")
    assert await is_refused(dial, port)
    assert await ask(reader, writer) == b"a:hi"
    await front.heal("a")
    assert await ask(*await dial(port)) == b"a:hi"


async def test_freeze_holds_bytes_and_new_connections_until_healed(
    front: FrontControl, dial: Dial, target: Target
) -> None:
    port = await front.link("a", address(target))
    old, new = await dial(port), None
    await ask(*old)
    await front.freeze("a")
    new = await dial(port)
    old[1].write(b"one")
    new[1].write(b"two")
    await until_connections(front, "a", 2)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(old[0].read(1), 0.15)
    await front.heal("a")
    async with asyncio.timeout(BOUND):
        assert await old[0].read(100) == b"a:one"
        assert await new[0].read(100) == b"a:two"


async def test_blackhole_swallows_bytes_and_ends(front: FrontControl, dial: Dial, target: Target) -> None:
    port = await front.link("a", address(target))
    reader, writer = await dial(port)
    await ask(reader, writer)
    target.ended.clear()
    await front.blackhole("a")
    writer.write(b"lost")
    writer.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(target.ended.wait(), 0.15)
    new, _ = await dial(port)
    await front.heal("a")
    async with asyncio.timeout(BOUND):
        await target.ended.wait()
    del new


@pytest.mark.parametrize(("direction", "reaches"), [("up", False), ("down", True)])
async def test_a_one_way_blackhole(
    front: FrontControl, dial: Dial, target: Target, direction: str, reaches: bool
) -> None:
    seen = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            if data == b"x":
                seen.set()
            writer.write(b"back")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = await front.link("one-way", server.sockets[0].getsockname())
    reader, writer = await dial(port)
    assert await ask(reader, writer, b"hello") == b"back"
    await front.blackhole("one-way", direction)  # type: ignore[arg-type]
    writer.write(b"x")
    if reaches:
        async with asyncio.timeout(BOUND):
            await seen.wait()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.15)
    assert seen.is_set() is reaches
    await front.heal("one-way")
    assert await is_reset(reader)
    server.close()


async def test_slow_adds_at_least_its_delay_and_keeps_the_order(
    front: FrontControl, dial: Dial, target: Target
) -> None:
    port = await front.link("a", address(target))
    reader, writer = await dial(port)
    await ask(reader, writer)
    await front.slow("a", delay_ms=40, bytes_per_s=100_000)
    loop = asyncio.get_running_loop()
    began = loop.time()
    writer.write(b"1" * 2000)
    async with asyncio.timeout(BOUND):
        assert await reader.readexactly(2002) == b"a:" + b"1" * 2000
    assert loop.time() - began >= 0.08 + 2 * 0.02 - 0.005
    await front.heal("a")
    assert await ask(reader, writer) == b"a:hi"


async def test_healing_a_slow_link_sends_what_was_queued(
    front: FrontControl, dial: Dial, target: Target
) -> None:
    port = await front.link("a", address(target))
    reader, writer = await dial(port)
    await ask(reader, writer)
    await front.slow("a", delay_ms=60_000)
    writer.write(b"late")
    await asyncio.sleep(0.05)
    await front.heal("a")
    async with asyncio.timeout(BOUND):
        assert await reader.read(100) == b"a:late"


async def test_a_link_gets_a_new_target(front: FrontControl, dial: Dial, target: Target) -> None:
    port = await front.link("a", ("127.0.0.1", 1))
    assert await is_refused(dial, port)
    assert await front.link("a", address(target)) == port
    assert await ask(*await dial(port)) == b"a:hi"


async def test_bad_requests_are_answered(front: FrontControl) -> None:
    for op, fields in (("nonsense", {}), ("fault", {"name": "nobody", "do": "cut"}), ("link", {})):
        with pytest.raises(DriverError, match="refused"):
            await front.request(op, **fields)
    assert await front.status() == {}
