from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from moorage.accounts.tokens import Tokens
from moorage.events.log import EventLog
from moorage.http.api import build_api
from moorage.http.context import HttpContext
from moorage.http.readiness import Observations, Readiness
from moorage.settings import Settings, load
from moorage.sockets.updates import Updates
from moorage.storage.state_memory import MemoryState
from moorage.storage.tasks_memory import MemoryTasks
from moorage.tasks.queue import TaskQueue

from .recorder import Recorder

SECRET = "http-test-secret-" + "s" * 30


@dataclass
class World:
    """One API over memory. ``seen`` is what the replica knows of itself; ``active`` may be an error to raise."""

    settings: Settings
    recorder: Recorder
    state: MemoryState
    tokens: Tokens
    events: EventLog
    tasks: MemoryTasks
    seen: Observations
    active: bool | Exception
    ask_peers: Callable[[], Awaitable[bool | None]] | None
    app: FastAPI

    def client(self, account: str | None = "acc") -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {self.tokens.issue(account)}"} if account else {}
        transport = httpx.ASGITransport(self.app)
        return httpx.AsyncClient(transport=transport, base_url="http://moorage", headers=headers)


def make_world(**overrides: Any) -> World:
    settings = load(secret_key=SECRET, **overrides)
    recorder, state, tokens = Recorder(), MemoryState(), Tokens(settings)
    events, tasks = EventLog(None, settings), MemoryTasks()
    world = World(
        settings, recorder, state, tokens, events, tasks,
        Observations(True, False, False, "ok", False), False, None, FastAPI(),
    )  # fmt: skip

    async def presence(account: str) -> bool:
        if isinstance(world.active, Exception):
            raise world.active
        return world.active

    async def ask_peers() -> bool | None:
        return await world.ask_peers() if world.ask_peers else None

    context = HttpContext(
        settings=settings,
        tokens=tokens,
        state=state,
        updates=Updates(recorder, lambda: recorder.up),
        presence=presence,
        readiness=Readiness(lambda: world.seen, ask_peers),
        events=events,
        tasks=TaskQueue(
            tasks, events, handler=settings.task_handler, event_max_bytes=settings.event_max_bytes
        ),
    )
    world.app = build_api(context)
    return world


@pytest.fixture
def world() -> World:
    return make_world()


@pytest.fixture
async def client(world: World) -> AsyncIterator[httpx.AsyncClient]:
    async with world.client() as made:
        yield made


@pytest.fixture
async def nobody(world: World) -> AsyncIterator[httpx.AsyncClient]:
    """Without a token."""
    async with contextlib.AsyncExitStack() as stack:
        yield await stack.enter_async_context(world.client(None))
