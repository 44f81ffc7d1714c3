"""Fixtures of the cluster tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest_asyncio

from ..valkey import Valkey
from .nodes import Node


@pytest_asyncio.fixture
async def start_node(valkey: Valkey) -> AsyncIterator[Callable[..., Awaitable[Node]]]:
    """``await start_node(**options)``: a node on ``valkey`` that ends with the test."""
    nodes: list[Node] = []

    async def start(url: str | None = None, **options: object) -> Node:
        node = Node(url or valkey.url, **options)  # type: ignore[arg-type]
        nodes.append(node)
        return await node.start()

    yield start
    for node in nodes:
        await node.stop()
