"""The link against a real server that is killed, frozen, and talked to while it does odd things."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from moorage.errors import BackplaneReply, BackplaneUnavailable, BackplaneUnknown
from moorage.storage.link import GROWTH_S, Link

from ..valkey import Valkey
from .tls import certificate

Until = Callable[..., Awaitable[None]]
StartLink = Callable[..., Awaitable[Link]]

TIMEOUT_MS = 1500
"""Where no test waits for it: longer than a busy machine keeps a Redis from answering."""


@pytest_asyncio.fixture
async def start_link(valkey: Valkey) -> AsyncIterator[StartLink]:
    links: list[Link] = []

    async def start(url: str | None = None, *, up: bool = True, **options: Any) -> Link:
        link = Link(url or valkey.url, **{"name": "test", "timeout_ms": TIMEOUT_MS, **options})
        links.append(link)
        link.start()
        assert await link.wait_up(10 if up else 0.01) is up
        return link

    yield start
    for link in links:
        await link.stop()


async def test_commands_of_a_tick_leave_in_one_write_and_in_order(
    start_link: StartLink, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await start_link()
    assert link._connection is not None
    transport = link._connection.transport
    assert transport is not None
    writes: list[bytes] = []
    spy = type("Spy", (), {"write": lambda self, data: (writes.append(data), transport.write(data)),
                           "abort": lambda self: transport.abort()})()  # fmt: skip
    monkeypatch.setattr(link._connection, "transport", spy)
    replies = await asyncio.gather(*(link.command("INCR", "n") for _ in range(500)))
    assert replies == list(range(1, 501))
    assert len(writes) == 1


async def test_arguments_and_replies(start_link: StartLink) -> None:
    link = await start_link()
    assert await link.command("SET", "é", b"\x00\xff") == b"OK"
    assert await link.command(b"GET", "é") == b"\x00\xff"
    assert await link.command("GET", "none") is None
    assert await link.command("EVAL", "return {1, 'a', {false}}", 0) == [1, b"a", [None]]
    with pytest.raises(BackplaneReply, match="WRONGTYPE"):
        await link.command("LPUSH", "é", 1)
    with pytest.raises(UnicodeEncodeError):
        link.command("SET", "\ud800", 1)
    assert await link.command("ECHO", "still paired") == b"still paired"


async def test_greeting(start_link: StartLink, valkey: Valkey, valkey_factory: Callable[..., Valkey]) -> None:
    link = await start_link(valkey.url[:-1] + "3", name="with space é")
    await link.command("SET", "k", 1)
    assert valkey.client.info("keyspace") == {"db3": valkey.client.info("keyspace")["db3"]}
    assert valkey.client_names() == ["with_space__"]
    assert link.client_id == await link.command("CLIENT", "ID")
    assert link.server_id == valkey.client.info("server")["run_id"]
    locked = valkey_factory("--requirepass", "p@ss")
    other = await start_link(locked.url.replace("//", "//:p%40ss@"))
    assert await other.command("PING") == b"PONG"
    await other.command("ACL", "SETUSER", "me", "on", ">word", "~*", "+@all")
    named = await start_link(locked.url.replace("//", "//me:word@"))
    assert await named.command("ACL", "WHOAMI") == b"me"


async def test_unix_socket(
    start_link: StartLink, valkey_factory: Callable[..., Valkey], tmp_path: Path
) -> None:
    path = tmp_path / "s"
    valkey_factory("--unixsocket", str(path))
    link = await start_link(f"unix://{path}")
    assert await link.command("PING") == b"PONG"


async def test_tls(start_link: StartLink, valkey: Valkey, until: Until, tmp_path: Path) -> None:
    """TLS ends in a small proxy: what is tested is our side."""
    authority, chain = certificate(tmp_path)
    open_now = 0

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal open_now
        open_now += 1
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", valkey.port)

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    sink.write(data)
            except OSError:
                pass
            sink.close()

        await asyncio.gather(copy(reader, up_writer), copy(up_reader, writer))
        await asyncio.gather(writer.wait_closed(), up_writer.wait_closed(), return_exceptions=True)
        open_now -= 1

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain)
    server = await asyncio.start_server(proxy, "127.0.0.1", 0, ssl=context)
    url = f"rediss://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    link = await start_link(url, ca_file=str(authority))
    assert await link.command("PING") == b"PONG"
    stranger = await start_link(url, up=False)  # an unknown authority is never accepted
    await until(lambda: "CERTIFICATE_VERIFY_FAILED" in stranger.trouble)
    await stranger.stop()
    await link.stop()
    server.close()
    await until(lambda: not open_now)  # or what is left is an unclosed transport, said in a later test


async def test_not_connected(start_link: StartLink, valkey: Valkey, until: Until) -> None:
    link = await start_link()
    valkey.kill()
    await until(lambda: not link.up)
    future = link.command("PING")
    assert future.done()
    with pytest.raises(BackplaneUnavailable):
        await future
    valkey.start()
    assert await link.wait_up(5)
    assert await link.command("PING") == b"PONG"


async def test_killed_with_commands_on_the_way(start_link: StartLink, valkey: Valkey, until: Until) -> None:
    downs: list[str] = []
    link = await start_link(on_down=lambda: downs.append("down"))
    valkey.freeze()
    written = link.command("INCR", "n")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    valkey.kill()
    with pytest.raises(BackplaneUnknown):
        await written
    assert downs == ["down"]


async def test_a_frozen_server_is_dropped_at_the_bound(
    start_link: StartLink, valkey: Valkey, until: Until
) -> None:
    link = await start_link(timeout_ms=400)
    assert link.stalled_for_ms == 0
    valkey.freeze()
    first, second = link.command("PING"), link.command("PING")
    await until(lambda: link.stalled_for_ms >= 100)
    assert link.up
    for future in (first, second):
        with pytest.raises(BackplaneUnknown, match="no reply in time"):
            await future
    assert link.stalled_for_ms == 0
    valkey.thaw()
    assert await link.wait_up(5)
    assert await link.command("ECHO", "a") == b"a"


async def test_a_loop_that_slept_does_not_blame_redis(start_link: StartLink, valkey: Valkey) -> None:
    link = await start_link(timeout_ms=200)
    future = link.command("PING")
    await asyncio.sleep(0)
    import time

    time.sleep(0.5)  # noqa: ASYNC251  (a stopped process)
    assert link.stalled_for_ms <= GROWTH_S * 1000
    assert await future == b"PONG"
    assert link.up


async def test_cancelling_never_mixes_replies(start_link: StartLink) -> None:
    link = await start_link()
    rng = random.Random(5)

    async def ask(number: int) -> bool:
        return bool(await link.command("ECHO", number) == str(number).encode())

    for _ in range(20):
        tasks = [asyncio.create_task(ask(n)) for n in range(100)]
        await asyncio.sleep(rng.choice([0, 0, 0.001]))
        for task in tasks:
            if rng.random() < 0.5:
                task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(r is True or isinstance(r, asyncio.CancelledError) for r in results)


async def test_storm_of_kills(start_link: StartLink, valkey: Valkey, until: Until) -> None:
    changes: list[str] = []
    link = await start_link(on_up=lambda: changes.append("up"), on_down=lambda: changes.append("down"))
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1, 101):
        assert valkey.kill_clients("normal") == 1
        await until(lambda: changes == ["up", "down"] * number + ["up"])  # noqa: B023
    assert await link.command("ECHO", "x") == b"x"
    await until(lambda: len(os.listdir("/proc/self/fd")) <= before)


async def test_log_says_each_change_once(
    start_link: StartLink, valkey: Valkey, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "moorage.storage.link")
    link = await start_link()
    valkey.kill()
    await until(lambda: not link.up)
    await until(lambda: "Connect call failed" in caplog.text)
    assert not await link.wait_up(0.2)  # several tries
    valkey.start()
    assert await link.wait_up(5)
    levels = [record.levelname for record in caplog.records]
    # up; down by the kill; down, refused; up again
    assert levels == ["INFO", "WARNING", "WARNING", "WARNING"]
    for _ in range(5):  # the same reason soon after is not said again, nor that it is over
        generation = link.client_id
        valkey.kill_clients("normal")
        await until(lambda: link.up and link.client_id != generation)  # noqa: B023
    assert len(caplog.records) == 4


async def test_a_wrong_password_is_said_once_and_not_shown(
    start_link: StartLink,
    valkey_factory: Callable[..., Valkey],
    until: Until,
    caplog: pytest.LogCaptureFixture,
) -> None:
    locked = valkey_factory("--requirepass", "right")
    link = await start_link(locked.url.replace("//", "//:terribly-wrong@"), up=False)
    await until(lambda: caplog.messages)
    assert not await link.wait_up(0.3)  # several tries
    assert [r for r in caplog.messages if "WRONGPASS" in r] == caplog.messages[:1]
    assert len(caplog.messages) == 1
    assert "terribly-wrong" not in caplog.text
    nobody = await start_link(locked.url, up=False)
    await until(lambda: "NOAUTH" in caplog.text)
    assert not await nobody.wait_up(0.1)


async def test_a_replica_is_not_up(start_link: StartLink, valkey: Valkey) -> None:
    link = await start_link()
    valkey.client.replicaof("127.0.0.1", 1)
    with pytest.raises(BackplaneUnavailable, match="READONLY"):
        await link.command("SET", "a", 1)
    assert not link.up
    assert not await link.wait_up(0.1)
    valkey.client.replicaof("NO", "ONE")
    assert await link.wait_up(5)


class Scripted(asyncio.Protocol):
    """A server that says what it is told to after a good greeting."""

    def __init__(self, greeting: bytes, then: bytes, connected: set[Scripted]) -> None:
        self.greeting, self.then, self.connected = greeting, then, connected

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.connected.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.connected.discard(self)

    def data_received(self, data: bytes) -> None:
        if b"HELLO" in data:
            self.transport.write(self.greeting)
        else:
            self.transport.write(self.then)


GREETING = b"*4\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$2\r\nid\r\n:1\r\n+PONG\r\n$0\r\n\r\n"


@pytest.mark.parametrize(
    ("greeting", "then"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", b""),
        (b"+OK\r\n", b""),
        (b"*1\r\n$1\r\nx\r\n+PONG\r\n$0\r\n\r\n", b""),
        (b"-LOADING Redis is loading\r\n" * 3, b""),
        (GREETING + b"+nobody asked\r\n", b""),
        (GREETING, b"garbage\r\n"),
        (GREETING, b"+OK\r\n+nobody asked\r\n"),
        (GREETING, b"-LOADING Redis is loading\r\n"),
    ],
)
async def test_odd_servers_end_nothing(
    start_link: StartLink, greeting: bytes, then: bytes, until: Until
) -> None:
    connected: set[Scripted] = set()
    server = await asyncio.get_running_loop().create_server(
        lambda: Scripted(greeting, then, connected), "127.0.0.1", 0
    )
    url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    downs: list[str] = []
    link = await start_link(url, up=bool(then), on_down=lambda: downs.append("down"))
    if then:
        future = link.command("PING")
        await until(lambda: downs)
        assert future.done()
    else:
        assert not await link.wait_up(0.1)
    assert link._task is not None
    assert not link._task.done()
    await link.stop()
    server.close()
    await until(lambda: not connected)  # or what is left is an unclosed transport, said in a later test


async def test_nothing_is_said_about_futures_that_nobody_awaits(
    start_link: StartLink, valkey: Valkey, until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    link = await start_link()
    link.command("NOSUCH")
    await link.command("PING")
    valkey.freeze()
    link.command("PING")
    valkey.kill()
    await until(lambda: not link.up)
    link.command("PING")
    gc.collect()
    await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text


async def test_a_full_output_buffer_refuses(
    start_link: StartLink, valkey: Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.storage.connection.OUTPUT_MAX_BYTES", 100_000)
    link = await start_link(timeout_ms=5000)
    valkey.freeze()
    futures = []
    for _ in range(200):
        futures.append(link.command("SET", "k", b"x" * 100_000))
        await asyncio.sleep(0)
    assert not futures[0].done()
    with pytest.raises(BackplaneUnavailable, match="full"):
        await futures[-1]
    valkey.thaw()
    assert await futures[0] == b"OK"


async def test_stop(start_link: StartLink, valkey: Valkey, until: Until) -> None:
    link = await start_link()
    valkey.freeze()
    future = link.command("PING")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await link.stop()
    with pytest.raises(BackplaneUnknown):
        await future
    with pytest.raises(BackplaneUnavailable):
        await link.command("PING")
