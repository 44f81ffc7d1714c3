"""Junk from clients: the client is closed or ignored, nothing else notices."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
import websockets
from hypothesis import example, given
from hypothesis import strategies as st

from moorage.cluster.local import LocalManager
from moorage.settings import Settings
from moorage.sockets.polling import PollingSocket
from moorage.sockets.server import SocketServer

from .running import receive, running, send_all, until

CLOSES: list[list[str | bytes]] = [
    ["x"], ["0"], ["2"], ["47"], ['42["e"'], ["42[]"], ['42{"a":1}'], ['42["connect",{}]'], ["43[]"],
    ['452-["e",{"_placeholder":true,"num":0}]', b"1", '42["e"]'],
    ['451-["e",{"_placeholder":true,"num":1}]', b"1"],
    ['4599999999-["e"]'], [b"attachment without a packet"], ["4" + "[" * 5000],
    ['42["e",' + "[" * 2000 + "]" * 2000 + "]"], ["42" + "9" * 300 + '["e"]'], ["bAAAA"], [""], ["44{}"],
]  # fmt: skip


@pytest.mark.parametrize("messages", CLOSES, ids=lambda messages: repr(messages[0][:14]))
async def test_whoever_breaks_the_protocol_is_closed(messages: list[str | bytes]) -> None:
    async with running() as server, server.raw() as good:
        async with server.raw() as bad:
            for message in messages:
                await bad.send(message)
            with pytest.raises(websockets.ConnectionClosed):
                await receive(bad)
        assert [reason for _, reason in server.closed] == ["transport error"]
        assert server.sio.malformed_clients == 1
        server.manager.emit_local("fine", [], [])
        assert await receive(good) == '42["fine"]'


async def test_ignored_messages() -> None:
    async with running() as server:
        async with server.raw(join=False) as ws:
            for message in ('42["e"]', "41", '431["x"]', "5", "6", "3", '42/x,["e"]', "41/x,"):
                await ws.send(message)
            await ws.send("40/unknown,")
            assert await receive(ws) == '44/unknown,{"message":"Invalid namespace"}'
            await ws.send("40")
            assert (await receive(ws)).startswith("40{")
            await ws.send("40")
            assert (await receive(ws)).startswith("44{")
            for message in ('42["connects"]', '439["x"]', '42["unknown",1]', '4299["unknown"]'):
                await ws.send(message)
            await ws.send('450-["zero attachments"]')
            server.manager.emit_local("fine", [], [])
            assert await receive(ws) == '42["fine"]'
        assert server.sio.malformed_clients == 0


async def test_binary_before_connect_and_a_flood_before_connect() -> None:
    async with running() as server:
        never = asyncio.Event()
        server.sio.on("connect", lambda sid, environ, auth: None)
        async with server.raw(join=False) as ws:
            await ws.send('451-["e",{"_placeholder":true,"num":0}]')
            with pytest.raises(websockets.ConnectionClosed):
                await receive(ws)

        async def connect(sid: str, environ: Any, auth: Any) -> None:
            await never.wait()

        server.sio.on("connect", connect)
        async with server.raw(join=False) as ws:
            with pytest.raises(websockets.ConnectionClosed):
                await send_all(ws, ["40", *['42["e"]'] * 100])
        assert server.sio.malformed_clients == 2
        never.set()


async def test_attachments_have_a_total_limit() -> None:
    async with running(max_payload_bytes=1024) as server, server.raw() as ws:
        await ws.send('4520-["e"]')
        with pytest.raises(websockets.ConnectionClosed):
            await send_all(ws, [bytes(1000)] * 20)
        assert server.sio.malformed_clients == 1


async def test_log_lines_hold_no_payload_and_do_not_flood(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running() as server:
        for _ in range(5):
            async with server.raw() as ws:
                await ws.send('42["e", secret')
                with pytest.raises(websockets.ConnectionClosed):
                    await receive(ws)
    ours = [
        record for record in caplog.records if record.levelno >= logging.INFO and "uvicorn" not in record.name
    ]
    assert len(ours) <= 1
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "frame",
    [
        b"\x81\x0240",                     # not masked
        b"\xc1\x82\x00\x00\x00\x0040",     # reserved bit
        b"\x83\x82\x00\x00\x00\x0040",     # unknown opcode
        b"\x80\x82\x00\x00\x00\x0040",     # continuation of nothing
        b"\x01\x81\x00\x00\x00\x004\x81\x81\x00\x00\x00\x000",  # a new message inside fragments
        b"\x09\x81\x00\x00\x00\x004",      # fragmented control frame
        b"\x81\xff" + b"\xff" * 12,        # absurd length
        b"\x81\x84\x00\x00\x00\x0042\xff\xff",  # not UTF-8
    ],
)  # fmt: skip
async def test_broken_websocket_frames(frame: bytes) -> None:
    async with running() as server, server.raw() as ws:
        ws.transport.write(frame)
        with pytest.raises(websockets.ConnectionClosed):
            await receive(ws)
        await until(server.nothing_left)


async def test_broken_handshakes() -> None:
    async with running() as server:
        for lines in (
            b"Upgrade: websocket\r\nConnection: Upgrade\r\n",
            b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 12\r\nSec-WebSocket-Key: x\r\n",
            b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: " + b"x" * 20_000 + b"\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(
                b"GET /v1/updates/?EIO=4&transport=websocket HTTP/1.1\r\nHost: x\r\n" + lines + b"\r\n"
            )
            async with asyncio.timeout(5):
                assert not (await reader.read(16)).startswith(b"HTTP/1.1 101")
            writer.close()
        assert not server.sio.eio.sockets
        async with httpx.AsyncClient(base_url=server.url) as http:
            for query in ("", "EIO=4&transport=polling&j=x", "EIO=4&transport=websocket"):
                assert (await http.get(f"/v1/updates/?{query}")).status_code == 400
            assert (await http.put("/v1/updates/?EIO=4&transport=polling")).status_code == 405


messages = st.lists(
    st.sampled_from(
        [
            "40",
            "41",
            "3",
            "1",
            '42["e"]',
            '421["e",{}]',
            '431["x"]',
            '451-["e",{"_placeholder":true,"num":0}]',
        ]
    )
    | st.sampled_from(["40/x,", '4298765432109876["e"]', '460-1["x"]', '452-["e"]'])
    | st.text(max_size=6)
    | st.text(max_size=8).map("42".__add__)
    | st.text('[]{}",:_0123456789-/eu\\', max_size=12).map("4".__add__)
    | st.binary(max_size=6),
    max_size=12,
)


@given(messages)
@example(["40", '451-["e",{"_placeholder":true,"num":0}]'])
@example(["40", '451-["e",{"_placeholder":true,"num":0}]', b"", "41"])
def test_no_sequence_of_messages_raises_or_leaks(sequence: list[str | bytes]) -> None:
    """Straight into a socket, without a network: faster, and an exception cannot hide in a protocol."""

    async def run() -> None:
        loop = asyncio.get_running_loop()
        errors: list[Any] = []
        loop.set_exception_handler(lambda loop, context: errors.append(context))
        sio = SocketServer(Settings(secret_key="k" * 32), LocalManager())
        sio.direct["e"] = lambda sid, args, reply: reply(*args) if reply else None
        peer = sio.opened("eio", {})
        socket = sio.eio.sockets["eio"] = PollingSocket(sio.eio, peer)
        for message in sequence:
            if isinstance(message, bytes):
                socket.take_binary(message)
            else:
                socket.take_text(message.encode())
            await asyncio.sleep(0)
        while sio._tasks:
            await asyncio.sleep(0)
        assert peer.partial is None or not socket.closing
        socket.close_now("transport close", abort=True)
        while sio._tasks:
            await asyncio.sleep(0)
        while sio.eio.sockets:
            await socket.poll()
        assert peer.partial is None
        assert not (sio.eio.ended or sio.environ or sio.manager.get_namespaces() or sio.manager.callbacks)
        assert errors == []

    asyncio.run(run())
