from __future__ import annotations

import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from moorage.client import Refused, Unreachable, sign_in

Answer = Callable[[dict[str, Any]], web.Response]
Start = Callable[[Answer], Awaitable[str]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    servers: list[TestServer] = []

    async def start(answer: Answer) -> str:
        async def handler(request: web.Request) -> web.Response:
            return answer(await request.json())

        app = web.Application()
        app.router.add_post("/v1/auth", handler)
        servers.append(TestServer(app))
        await servers[-1].start_server()
        return str(servers[-1].make_url(""))

    yield start
    for server in servers:
        await server.close()


@pytest.mark.parametrize("as_bytes", [True, False])
async def test_the_challenge_is_signed_by_the_account(start: Start, as_bytes: bool) -> None:
    key = Ed25519PrivateKey.generate()
    bodies: list[dict[str, Any]] = []

    def answer(body: dict[str, Any]) -> web.Response:
        bodies.append(body)
        return web.json_response({"success": True, "token": "t"})

    url = await start(answer)
    assert await sign_in(url, key.private_bytes_raw() if as_bytes else key) == "t"
    public, challenge, signature = (
        base64.b64decode(bodies[0][name]) for name in ("publicKey", "challenge", "signature")
    )
    assert public == key.public_key().public_bytes_raw()
    Ed25519PublicKey.from_public_bytes(public).verify(signature, challenge)
    assert abs(int(challenge.split(b":")[0]) - time.time() * 1000) < 60_000


@pytest.mark.parametrize(
    ("status", "body", "expected", "text"),
    [
        (401, {"error": "Invalid signature", "statusCode": 401}, Refused, "Invalid signature"),
        (422, {"detail": "what FastAPI says"}, Refused, "HTTP 422"),
        (503, {"error": "Backplane unavailable"}, Unreachable, "Backplane unavailable"),
        (429, {}, Unreachable, "HTTP 429"),
        (200, {"success": True}, Unreachable, "HTTP 200"),
        (200, [], Unreachable, "HTTP 200"),
    ],
)
async def test_refusals(start: Start, status: int, body: Any, expected: type[Exception], text: str) -> None:
    url = await start(lambda _: web.json_response(body, status=status))
    with pytest.raises(expected, match=text):
        await sign_in(url, Ed25519PrivateKey.generate())


async def test_no_json_and_no_server_are_unreachable(start: Start) -> None:
    url = await start(lambda _: web.Response(text="<html>"))
    with pytest.raises(Unreachable):
        await sign_in(url, Ed25519PrivateKey.generate())
    with pytest.raises(Unreachable):
        await sign_in("http://127.0.0.1:1", Ed25519PrivateKey.generate(), timeout=5)
