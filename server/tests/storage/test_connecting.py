"""How a link gets a connection when the name leads nowhere, or to a machine that is gone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
import pytest_asyncio

from moorage.storage.link import Link

from ..valkey import Valkey

Found = list[tuple[Any, ...]]
Until = Callable[..., Awaitable[None]]


class Resolver:
    """Stands in for the loop's: what each look-up finds is said by the test."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers: list[str | OSError] = []
        """The last one stays."""
        self.answering = asyncio.Event()
        self.answering.set()

    async def __call__(self, host: str, port: int, **options: Any) -> Found:
        self.asked += 1
        await self.answering.wait()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return [
            (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (one, port))
            for one in answer.split()
        ]


@pytest_asyncio.fixture
async def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    """Addresses are looked up by the loop's own, as asyncio does when it is given one."""
    loop, made = asyncio.get_running_loop(), Resolver()
    real = loop.getaddrinfo

    async def lookup(host: str, port: int, **options: Any) -> Found:
        own = host == "redis.test"
        return await made(host, port) if own else await real(host, port, **options)

    monkeypatch.setattr(loop, "getaddrinfo", lookup, raising=False)
    return made


@pytest_asyncio.fixture
async def link(valkey: Valkey) -> AsyncIterator[Link]:
    """Its bound is so long that a test which has to wait for it fails."""
    made = Link(f"redis://redis.test:{valkey.port}/0", name="test", timeout_ms=60_000)
    yield made
    await made.stop()


@pytest.fixture
def nobody(valkey: Valkey) -> Iterator[str]:
    """An address that swallows what is sent to the server's port: its queue of connections is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.2", valkey.port))
        listener.listen(0)
        fillers = [socket.socket() for _ in range(8)]
        for one in fillers:
            one.setblocking(False)
            one.connect_ex(("127.0.0.2", valkey.port))
        yield "127.0.0.2"
        for one in fillers:
            one.close()


async def test_an_address_that_answers_nothing_holds_nobody_up(
    link: Link, resolver: Resolver, nobody: str
) -> None:
    resolver.answers = [nobody, nobody, "127.0.0.1"]
    link.start()
    assert await link.wait_up(10)
    assert resolver.asked == 3


async def test_the_next_address_of_a_name_is_tried(link: Link, resolver: Resolver, nobody: str) -> None:
    resolver.answers = [f"{nobody} 127.0.0.1"]
    link.start()
    assert await link.wait_up(10)
    assert resolver.asked == 1


async def test_a_name_that_is_not_known_yet(link: Link, resolver: Resolver) -> None:
    resolver.answers = [socket.gaierror("Name or service not known"), "", "127.0.0.1"]
    link.start()
    assert await link.wait_up(10)
    assert resolver.asked == 3
    assert "the name has no address" in link.trouble


async def test_look_ups_that_hang_do_not_pile_up(
    valkey: Valkey, resolver: Resolver, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = Link(f"redis://redis.test:{valkey.port}/0", name="test", timeout_ms=50)
    tries, addresses = 0, link._lookup.addresses

    async def counted() -> list[str]:
        nonlocal tries
        tries += 1
        return await addresses()

    monkeypatch.setattr(link._lookup, "addresses", counted)
    resolver.answers = ["127.0.0.1"]
    resolver.answering.clear()
    link.start()
    await until(lambda: tries >= 4)
    assert link.trouble == "no answer in time"
    assert not link.up
    assert resolver.asked == 1
    # The try that gets the answer has time for the rest: one that ended in between would have to ask anew.
    link._timeout_s, before = 60.0, tries
    await until(lambda: tries > before)
    resolver.answering.set()
    assert await link.wait_up(10)
    assert resolver.asked == 1
    await link.stop()


async def test_a_link_that_stops_does_not_wait_for_a_look_up(
    link: Link, resolver: Resolver, caplog: pytest.LogCaptureFixture
) -> None:
    resolver.answers = [socket.gaierror("Name or service not known")]
    resolver.answering.clear()
    link.start()
    while not resolver.asked:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(5):
        await link.stop()
    resolver.answering.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert "never retrieved" not in caplog.text
