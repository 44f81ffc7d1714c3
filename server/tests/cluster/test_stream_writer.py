"""Nothing lost, nothing doubled, order kept: the writer over lost connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from moorage.cluster import writer as writer_module
from moorage.cluster.writer import StreamWriter, last_id, parse_id
from moorage.errors import BackplaneReply, BackplaneUnavailable, BackplaneUnknown
from moorage.storage.backplane import Backplane

from ..valkey import Valkey

Until = Callable[..., Awaitable[None]]
Make = Callable[..., Awaitable[StreamWriter]]


@pytest_asyncio.fixture
async def make(valkey: Valkey) -> AsyncIterator[Make]:
    """A writer with uid ``me`` on ``valkey`` or another URL."""
    made: list[tuple[Backplane, StreamWriter]] = []

    async def start(url: str = "") -> StreamWriter:
        backplane = Backplane(url or valkey.url, name="w", timeout_ms=300, stall_ms=100)
        await backplane.start(0.2)
        writer = StreamWriter(backplane, uid="me", maxlen=100_000)
        writer.start()
        made.append((backplane, writer))
        return writer

    yield start
    for backplane, writer in made:
        await writer.stop(0)
        await backplane.stop()


def numbers(valkey: Valkey, stream: str = "s", uid: bytes = b"me") -> list[int]:
    return [int(f[b"data"]) for _, f in valkey.client.xrange(stream) if f[b"uid"] == uid]


def entry(number: int, uid: str = "me") -> list[bytes | str]:
    return ["uid", uid, "nsp", "/", "type", "3", "data", str(number)]


async def test_entries_of_a_tick(make: Make, valkey: Valkey, until: Until) -> None:
    writer = await make()
    for number in range(3000):
        writer.append("s" if number % 3 else "t", entry(number))
    await until(lambda: not writer.pending)
    assert sorted(numbers(valkey) + numbers(valkey, "t")) == list(range(3000))
    assert numbers(valkey) == sorted(numbers(valkey))
    assert (writer.dropped, writer.refused, writer.possibly_lost) == (0, 0, 0)


async def test_maxlen(valkey: Valkey, until: Until) -> None:
    backplane = Backplane(valkey.url, name="w")
    await backplane.start()
    writer = StreamWriter(backplane, uid="me", maxlen=200)
    writer.start()
    for number in range(2000):
        writer.append("s", entry(number))
    await until(lambda: not writer.pending)
    assert 200 <= valkey.client.xlen("s") <= 400  # `~` leaves part of a node
    await writer.stop()
    await backplane.stop()


async def test_kills_while_writing_lose_and_double_nothing(make: Make, valkey: Valkey, until: Until) -> None:
    writer = await make()
    total = 0
    for _ in range(40):
        for _ in range(5):
            for _ in range(50):
                writer.append("s", entry(total))
                total += 1
            await asyncio.sleep(0)
        valkey.kill_clients("normal")
        await asyncio.sleep(0.002)
    await until(lambda: not writer.pending)
    assert numbers(valkey) == list(range(total))
    assert writer.possibly_lost == 0


async def test_restart_with_the_data_kept(
    make: Make, valkey_factory: Callable[..., Valkey], until: Until
) -> None:
    kept = valkey_factory(aof=True)
    writer = await make(kept.url)
    total = 0
    for _ in range(3):
        for _ in range(5):
            for _ in range(200):
                writer.append("s", entry(total))
                total += 1
            await asyncio.sleep(0)
        kept.kill()
        writer.append("s", entry(total))
        total += 1
        kept.start()
    await until(lambda: not writer.pending)
    assert numbers(kept) == list(range(total))
    assert writer.possibly_lost == 0


async def test_restart_with_the_data_wiped(make: Make, valkey: Valkey, until: Until) -> None:
    writer = await make()
    writer.append("s", entry(-1))
    await until(lambda: not writer.pending)
    valkey.freeze()
    for number in range(10):
        writer.append("s", entry(number))
    await until(lambda: not writer._backplane.available)
    for number in range(10, 20):
        writer.append("s", entry(number))
    valkey.kill()
    valkey.start()
    await until(lambda: not writer.pending)
    # What was on its way may have been read by others before the end: never twice.
    assert numbers(valkey) == list(range(10, 20))
    assert writer.possibly_lost == 10


async def test_a_freeze_beyond_the_bound(make: Make, valkey: Valkey, until: Until) -> None:
    writer = await make()
    valkey.client.xadd("s", {"uid": "other", "data": 0})
    for number in range(5):
        writer.append("s", entry(number))
    await until(lambda: not writer.pending)
    valkey.freeze()
    for number in range(5, 10):
        writer.append("s", entry(number))
    await until(lambda: not writer._backplane._commands.up)
    writer.append("s", entry(10))
    valkey.thaw()
    await until(lambda: not writer.pending)
    assert numbers(valkey) == list(range(11))
    assert writer.possibly_lost == 0


class Delay:
    """A network on the way to Redis that can keep what it was given, for a connection that we have given up."""

    def __init__(self, valkey: Valkey) -> None:
        self.port = valkey.port
        self.flowing = asyncio.Event()
        self.flowing.set()
        self.tasks: list[asyncio.Task[None]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self.port)
        flowing = self.flowing

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter, gate: asyncio.Event) -> None:
            while data := await source.read(65536):
                await gate.wait()
                sink.write(data)
            sink.close()

        always = asyncio.Event()
        always.set()
        loop = asyncio.get_running_loop()
        self.tasks.append(loop.create_task(copy(reader, up_writer, flowing)))
        self.tasks.append(loop.create_task(copy(up_reader, writer, always)))


async def test_commands_that_arrive_after_their_connection_was_given_up(
    make: Make, valkey: Valkey, until: Until
) -> None:
    network = Delay(valkey)
    server = await asyncio.start_server(network, "127.0.0.1", 0)
    writer = await make(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    writer.append("s", entry(0))
    await until(lambda: not writer.pending)
    held, network.flowing = network.flowing, asyncio.Event()
    network.flowing.set()  # for connections from now on
    held.clear()
    for number in range(1, 11):
        writer.append("s", entry(number))
    await until(lambda: not writer.pending)  # given up, connected anew, settled, sent again
    held.set()
    await asyncio.wait(network.tasks[:2], timeout=5)
    writer.append("s", entry(11))
    await until(lambda: not writer.pending)
    assert numbers(valkey) == list(range(12))
    server.close()
    await writer._backplane.stop()
    await asyncio.wait(network.tasks, timeout=5)


async def test_a_user_who_may_not_ask_gets_no_doubles(make: Make, valkey: Valkey, until: Until) -> None:
    valkey.client.execute_command("ACL SETUSER me on >p ~* &* +@all -info")
    writer = await make(valkey.url.replace("//", "//me:p@"))
    writer.append("s", entry(0))
    await until(lambda: not writer.pending)
    valkey.freeze()
    writer.append("s", entry(1))
    await until(lambda: not writer._backplane._commands.up)
    valkey.thaw()
    writer.append("s", entry(2))
    await until(lambda: not writer.pending)
    assert writer.possibly_lost == 1
    await until(lambda: numbers(valkey) == [0, 1, 2] or numbers(valkey) == [0, 2, 1])


async def test_the_buffer_drops_the_oldest(
    make: Make, valkey: Valkey, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "WAITING_MAX_ENTRIES", 100)
    writer = await make()
    writer.append("s", entry(0))
    await until(lambda: not writer.pending)
    valkey.kill()
    await until(lambda: not writer._backplane._commands.up)
    for number in range(1, 251):
        writer.append("s", entry(number))
    writer.append("s", entry(999), volatile=True)
    assert (writer.pending, writer.dropped) == (100, 151)
    monkeypatch.setattr(writer_module, "WAITING_MAX_BYTES", 50 * 150)
    writer.append("s", entry(251))
    assert writer.pending < 100
    left = writer.pending
    valkey.start()
    await until(lambda: not writer.pending)
    assert numbers(valkey) == list(range(252 - left, 252))


async def test_order_around_an_outage(make: Make, valkey: Valkey, until: Until) -> None:
    writer = await make()
    stop = False
    written = 0

    async def write() -> None:
        nonlocal written
        while not stop:
            writer.append("s", entry(written))
            written += 1
            await asyncio.sleep(0.0005)

    task = asyncio.create_task(write())
    for _ in range(3):
        await asyncio.sleep(0.05)
        valkey.freeze()
        await until(lambda: not writer._backplane.available)
        valkey.thaw()
        await until(lambda: writer._backplane.available)
    stop = True
    await task
    await until(lambda: not writer.pending)
    assert numbers(valkey) == list(range(written))


async def test_what_redis_refuses_is_counted(
    make: Make, valkey: Valkey, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    valkey.client.set("s", "no stream")
    writer = await make()
    writer._confirmed["s"] = b"0-0"  # as if the key had been replaced behind our back
    for number in range(3):
        writer.append("s", entry(number))
    await until(lambda: writer.refused == 3)
    assert caplog.text.count("WRONGTYPE") == 1
    valkey.client.delete("s")
    writer.append("s", entry(3))
    await until(lambda: not writer.pending)
    assert numbers(valkey) == [3]


async def test_stop_sends_what_waits(make: Make, valkey: Valkey) -> None:
    writer = await make()
    for number in range(2000):
        writer.append("s", entry(number))
    await writer.stop()
    assert numbers(valkey) == list(range(2000))
    assert writer.dropped == 0


async def test_stop_with_redis_away_ends_and_says_what_is_lost(
    make: Make, valkey: Valkey, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    writer = await make()
    valkey.kill()
    await until(lambda: not writer._backplane.available)
    writer.append("s", entry(0))
    await asyncio.wait_for(writer.stop(0.1), 5)
    writer.append("s", entry(1))
    writer.append("s", entry(2))
    assert writer.dropped == 3
    assert [record.getMessage() for record in caplog.records if record.name == writer_module.__name__] == [
        "stopped: 1 cluster messages were not written to redis, of 0 more it is not known",
        "the cluster manager is stopped: what is emitted now reaches no other server",
    ]


async def test_stop_says_what_may_be_lost(
    make: Make, valkey: Valkey, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    writer = await make()
    writer.append("s", entry(0))
    await until(lambda: not writer.pending)
    valkey.freeze()
    writer.append("s", entry(1))
    await asyncio.wait_for(writer.stop(0.1), 5)
    assert "stopped: 0 cluster messages were not written to redis, of 1 more it is not known" in caplog.text
    valkey.thaw()
    await until(lambda: numbers(valkey) == [0, 1])


class Scripted:
    """A backplane whose XADDs are answered by hand; ``sent``: number of each and its future."""

    available = True
    connection = ("run", 1)

    def __init__(self) -> None:
        self.sent: list[tuple[int, asyncio.Future[bytes]]] = []

    def command(self, *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if args[0] == "XADD":
            self.sent.append((int(args[-1]), future))
        else:
            future.set_result([b"last-generated-id", b"1-0"] if args[0] == "XINFO" else [])
        return future


async def test_what_was_refused_and_what_must_be_settled_keep_their_order(until: Until) -> None:
    """As where a master is demoted: it refuses some, then the connection is given up with others under way."""
    backplane = Scripted()
    writer = StreamWriter(backplane, uid="me", maxlen=100)  # type: ignore[arg-type]
    writer.start()
    writer.append("s", entry(0))
    await until(lambda: backplane.sent)
    backplane.sent[0][1].set_result(b"1-0")
    await until(lambda: not writer.pending)
    for number in range(1, 6):
        writer.append("s", entry(number))
    for number, future in backplane.sent[1:]:
        error = BackplaneUnavailable("READONLY") if number in (1, 2) else BackplaneUnknown("lost")
        future.set_exception(error)
    backplane.available = False
    writer.append("s", entry(6))
    backplane.available = True
    await until(lambda: len(backplane.sent) == 12)
    assert [number for number, _ in backplane.sent[6:]] == [1, 2, 3, 4, 5, 6]
    await writer.stop(0)


async def test_ids(valkey: Valkey) -> None:
    assert parse_id(b"9-10") > parse_id(b"9-9") > parse_id(b"8-11")
    backplane = Backplane(valkey.url, name="w")
    await backplane.start()
    assert await last_id(backplane.command, "none") == b"0-0"
    valkey.client.xadd("s", {"a": 1}, id="5-7")
    valkey.client.xdel("s", "5-7")
    assert await last_id(backplane.command, "s") == b"5-7"
    valkey.client.set("k", 1)
    with pytest.raises(BackplaneReply):
        await last_id(backplane.command, "k")
    await backplane.stop()
