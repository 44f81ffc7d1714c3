"""Fixtures for all tests of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from .valkey import Valkey

WAIT_S = 10.0
"""Bound of one wait for something that normally takes milliseconds."""


@pytest.fixture
def valkey_factory() -> Iterator[Callable[..., Valkey]]:
    """``valkey_factory(*arguments, aof=False)`` starts a server that ends with the test."""
    servers: list[Valkey] = []

    def make(*arguments: str, aof: bool = False) -> Valkey:
        server = Valkey(*arguments, aof=aof)
        servers.append(server)
        server.start()
        return server

    yield make
    for server in servers:
        server.stop()


@pytest.fixture
def valkey(valkey_factory: Callable[..., Valkey]) -> Valkey:
    """An empty, running Redis."""
    return valkey_factory()


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    """``await until(condition)``: until it is true (5 ms looks), or the test fails after a bound."""

    async def wait(condition: Callable[[], object], what: str = "condition") -> None:
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, f"{what} did not come true"
            await asyncio.sleep(0.005)

    return wait
