"""Moorage's own clients, and one that shows no token, through the real HAProxy, with real replicas behind it."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from moorage.client import Caller, Connection, Daemon, EventStream
from moorage.client.socket import Socket

from .balancer import BOUND_S, Balancer
from .servers import account, fronted

pytestmark = pytest.mark.timeout(180)
"""[s] More than one wait may last."""


@dataclass
class World:
    url: str
    front: Balancer
    processes: dict[str, subprocess.Popen[bytes]]


@pytest.fixture
def world(haproxy: None, tmp_path: Path) -> Iterator[World]:
    with fronted(tmp_path, 2) as (front, processes):
        yield World(f"http://127.0.0.1:{front.port}", front, processes)


class Bare(Socket):
    """The client's Socket as it would be in a browser, whose pages cannot set a header on a WebSocket."""

    async def connect(self, url: str, **options: Any) -> None:
        await super().connect(url, **options | {"headers": {}})


async def until(what: str, probe: Callable[[], object]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not probe():
            await asyncio.sleep(0.02)


async def session(world: World, token: str) -> str:
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as http,
        http.post(f"{world.url}/v1/sessions", json={"tag": "t", "metadata": None}) as answer,
    ):
        assert answer.status == 200
        return str((await answer.json())["session"]["id"])


async def test_all_connections_of_a_user_are_on_one_replica(world: World) -> None:
    """A daemon, a caller, a stream of events by header, and one as a browser opens it, by subprotocol."""
    token = await account(world.url)
    stream_id = await session(world, token)
    daemon = Daemon(world.url, token, machine_id="m")
    daemon.add_method("m:add", lambda params: params["a"] + params["b"])
    protocols = ("moorage.v1", f"bearer.{token}")
    async with (
        daemon,
        Caller(world.url, token) as caller,
        EventStream(world.url, token, stream_id),
        aiohttp.ClientSession() as http,
        http.ws_connect(f"{world.url}/v1/sessions/{stream_id}/stream", protocols=protocols) as browser,
    ):
        assert browser.protocol == "moorage.v1"
        assert (await browser.receive_json(timeout=BOUND_S))["type"] == "ws_ready"
        assert daemon.replica == caller.replica
        assert await caller.call("m:add", {"a": 1, "b": 2}) == 3
        await until("all four in one place", lambda: world.front.sessions("by_subject") == [4])


async def test_a_replica_that_drains_moves_its_own_users_and_nobody_else(world: World) -> None:
    homes: dict[str, Connection] = {}
    try:
        while len(homes) < len(world.processes):
            connection = Connection(world.url, await account(world.url))
            await connection.start()
            await connection.connected(BOUND_S)
            assert connection.replica is not None
            if connection.replica in homes:
                await connection.stop()
            else:
                homes[connection.replica] = connection
        going, staying = sorted(homes)
        sid = homes[staying].sid
        world.processes[going].send_signal(signal.SIGTERM)
        await until("moved", lambda: homes[going].replica == staying)
        assert homes[staying].sid == sid
        await asyncio.to_thread(world.front.until_serving, 1)
    finally:
        for connection in homes.values():
            await connection.stop()


async def test_clients_that_show_no_token_spread_and_reach_each_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moorage.client.keeper.Socket", Bare)
    token = await account(world.url)
    # Its request is over for us before it is for HAProxy, which would count it to its replica's connections.
    await until("signed in", lambda: not world.front.sessions("by_load"))
    daemon = Daemon(world.url, token, machine_id="m")
    daemon.add_method("m:add", lambda params: params["a"] + params["b"])
    async with daemon, Caller(world.url, token) as caller:
        assert daemon.replica != caller.replica
        assert await caller.call("m:add", {"a": 1, "b": 2}) == 3
        await until("one on each", lambda: world.front.sessions("by_load") == [1, 1])
