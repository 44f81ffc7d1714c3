"""The small HTTP client: statuses, chunked bodies, bounds; the Prometheus page."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage_chaos.drivers.probe import get, sums


async def answer(data: bytes, timeout_s: float = 5) -> tuple[int, bytes]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        try:
            await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:  # whoever asked went before
            return
        writer.write(data)
        if data:
            writer.close()

    held: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        return await get(f"http://127.0.0.1:{port}/a?b=1", timeout_s=timeout_s)
    finally:
        server.close()
        for writer in held:
            writer.close()


async def test_status_and_body() -> None:
    assert await answer(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno") == (503, b"no")


async def test_a_chunked_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert await answer(head + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n") == (200, b"abcde")


@pytest.mark.parametrize("data", [b"garbage", b"HTTP/1.1", b"HTTP/1.1 abc\r\n\r\n"])
async def test_what_is_no_http_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        await answer(data)


async def test_silence_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        await answer(b"", timeout_s=0.1)


@given(st.text())
def test_any_page_can_be_summed(text: str) -> None:
    assert all(isinstance(value, float) for value in sums(text).values())


def test_labels_are_summed_up() -> None:
    page = '# HELP a x\na{m="1"} 1\na{m="}2"} 2.5\nb NaN\nc 1e3 1700000000\nbroken\n'
    found = sums(page)
    assert found["c"] == 1000
    assert found["b"] != found["b"]
