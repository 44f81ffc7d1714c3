"""POSTs that are answered where they arrive, and those that go to the application after all, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest

from .running import WAIT_S, Running, running

PATH = "/here"


class Echo:
    """Accepts who says ``x-mine``; answers what does not begin with ``no``."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def accept(self, headers: Iterable[tuple[bytes, bytes]]) -> Any | None:
        return dict(headers).get(b"x-mine")

    def answer(self, accepted: Any, body: bytes) -> tuple[int, bytes] | None:
        if body.startswith(b"no"):
            return None
        self.bodies.append(body)
        return 202, b'{"mine":"%b"}' % accepted


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the path and the body."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    answer = b"app " + scope["path"].encode() + b" " + body
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


class Wire:
    """A connection, read response by response."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def response(self) -> tuple[int, dict[str, str], bytes]:
        async with asyncio.timeout(WAIT_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:-2])
            }
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def ends(self) -> bool:
        async with asyncio.timeout(WAIT_S):
            return await self.reader.read() == b""


@contextlib.asynccontextmanager
async def wire(server: Running) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()


@contextlib.asynccontextmanager
async def site() -> AsyncIterator[tuple[Running, Echo]]:
    async with running(app) as server:
        echo = Echo()
        server.sio.direct_posts[PATH.encode()] = echo
        yield server, echo


def post(
    body: bytes = b"{}", *headers: str, path: str = PATH, version: str = "1.1", method: str = "POST"
) -> bytes:
    lines = [f"{method} {path} HTTP/{version}", "Host: x", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


MINE = "X-Mine: yes"


async def test_answered_here_again_and_again() -> None:
    async with site() as (server, echo), wire(server) as link:
        for n in range(3):
            link.writer.write(post(b"%d" % n, MINE))
            status, headers, body = await link.response()
            assert (status, body) == (202, b'{"mine":"yes"}')
            assert headers["content-type"] == "application/json"
        assert echo.bodies == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "request_",
    [
        post(b"{}"), post(b"no thanks", MINE), post(b"", MINE, method="PUT"), post(b"{}", MINE, path="/there"),
        post(b"{}", MINE, path=f"{PATH}?query"),
    ],
)  # fmt: skip
async def test_all_else_is_the_applications(request_: bytes) -> None:
    async with site() as (server, echo), wire(server) as link:
        for _ in range(2):
            link.writer.write(request_)
            status, _, body = await link.response()
            assert status == 200
            assert body.startswith(b"app /")
            assert body.endswith(request_.partition(b"\r\n\r\n")[2])
        link.writer.write(post(b"after", MINE))
        assert (await link.response())[0] == 202
        assert echo.bodies == [b"after"]


async def test_bytes_one_by_one() -> None:
    async with site() as (server, echo), wire(server) as link:
        for body, status in ((b"a body in pieces", 202), (b"no body for here", 200)):
            for byte in post(body, MINE):
                link.writer.write(bytes((byte,)))
                await asyncio.sleep(0)
            assert (await link.response())[0] == status
        assert echo.bodies == [b"a body in pieces"]


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    async with site() as (server, _), wire(server) as link:
        link.writer.write(
            post(b"1", MINE) + post(b"2") + post(b"3", MINE) + post(b"no 4", MINE) + post(b"5", MINE)
        )
        answers = [(await link.response())[2] for _ in range(5)]
        assert [answer[:4] for answer in answers] == [b'{"mi', b"app ", b"app ", b"app ", b"app "]
        assert [answer[-1:] for answer in answers[1:]] == [b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize(
    "request_", [post(b"{}", MINE, "Connection: close"), post(b"{}", MINE, version="1.0")]
)
async def test_a_connection_that_is_to_close_closes(request_: bytes) -> None:
    async with site() as (server, _), wire(server) as link:
        link.writer.write(request_)
        status, headers, _ = await link.response()
        assert (status, headers.get("connection")) in {(202, "close"), (200, "close")}
        assert await link.ends()


async def test_who_waits_for_100_gets_it() -> None:
    async with site() as (server, _), wire(server) as link:
        head, _, body = post(b"slow", MINE, "Expect: 100-continue").partition(b"\r\n\r\n")
        link.writer.write(head + b"\r\n\r\n")
        assert (await link.response())[0] == 100
        link.writer.write(body)
        assert (await link.response())[2].endswith(b"slow")


async def test_a_client_that_leaves_amid_its_body_leaves_nothing() -> None:
    async with site() as (server, echo):
        async with wire(server) as link:
            link.writer.write(post(b"x" * 1000, MINE)[:-1])
            await link.writer.drain()
        async with wire(server) as link:
            link.writer.write(post(b"next", MINE))
            assert (await link.response())[0] == 202
        assert echo.bodies == [b"next"]
