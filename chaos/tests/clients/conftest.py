"""A small Socket.IO server that answers as a replica would, or as no replica should."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import socketio
from aiohttp import web

from moorage_chaos.accounts import Account
from moorage_chaos.clients import Clients
from moorage_chaos.history import History


@dataclass
class Stub:
    """``answers``: what ``rpc-call`` is acked with, by method; a method that is missing is never answered."""

    url: str
    io: Any
    answers: dict[str, Any] = field(default_factory=dict)
    seen: list[tuple[str, Any]] = field(default_factory=list)
    sids: list[str] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    io = socketio.AsyncServer(async_mode="aiohttp")
    app = web.Application()
    io.attach(app, "v1/updates")
    made = Stub("", io)

    async def emitted(request: web.Request) -> web.Response:
        made.seen.append(("emit", await request.json()))
        return web.json_response({"id": "u", "seq": 4}, status=202)

    app.router.add_post("/v1/emit", emitted)

    @io.on("connect")
    async def connect(sid: str, environ: Any, auth: Any) -> None:
        if auth.get("token") == "bad":
            raise socketio.exceptions.ConnectionRefusedError("Invalid authentication token")
        made.sids.append(sid)

    @io.on("rpc-register")
    async def register(sid: str, data: Any) -> None:
        await io.emit("rpc-registered", {"method": data["method"], "scope": "cluster"}, to=sid)

    @io.on("rpc-call")
    async def call(sid: str, data: Any) -> Any:
        made.seen.append(("rpc-call", data))
        answer = made.answers.get(data["method"], "never")
        if answer == "never":
            await io.sleep(30)
        if answer == "cut":
            await io.disconnect(sid)
        return {**answer, "result": {"call": data["params"]["call"]}} if answer.get("ok") else answer

    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


@pytest.fixture
async def clients(stub: Stub) -> AsyncIterator[Clients]:
    driver: Any = SimpleNamespace(url=stub.url, kind="local")
    made = Clients(driver, History(), random.Random(1))
    yield made
    await made.close()


@pytest.fixture
def account() -> Account:
    return Account("account-1", token="good")
