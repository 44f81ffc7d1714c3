"""Bounds: slow readers, dead clients, those that never join, messages that are too large."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest
import websockets

from .running import WAIT_S, Running, receive, receive_event, running, send_all, until


async def test_a_slow_reader_is_cut_and_others_are_not() -> None:
    async with running(socket_max_buffer_bytes=200_000) as server, server.client() as good:
        got = 0

        def count(_: Any) -> None:
            nonlocal got
            got += 1

        good.on("news", count)
        writer = await never_reads(server)
        await until(lambda: _connected(server) == 2)
        rounds = 0
        while _connected(server) == 2:
            server.manager.emit_local("news", ["x" * 50_000], [])
            rounds += 1
            await until(lambda rounds=rounds: got == rounds)
            assert rounds < 2000
        assert [reason for _, reason in server.closed] == ["transport error"]
        assert server.sio.slow_clients == 1
        assert server.manager.emit_local("news", [""], []) == 1
        writer.close()


async def never_reads(server: Running) -> asyncio.StreamWriter:
    """A client that joins the default namespace and then leaves its socket alone."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    writer.write(
        b"GET /v1/updates/?EIO=4&transport=websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"\x81\x82\x00\x00\x00\x0040")
    return writer


async def test_volatile_events_leave_out_who_is_behind() -> None:
    async with running(socket_max_buffer_bytes=10_000_000) as server:
        writer = await never_reads(server)
        await until(lambda: _connected(server) == 1)
        socket = next(iter(server.sio.eio.sockets.values()))
        assert server.manager.emit_local("news", [], [], volatile=True) == 1
        while not socket.behind:
            server.manager.emit_local("news", ["x" * 50_000], [])
        assert server.manager.emit_local("news", [], [], volatile=True) == 0
        assert server.manager.emit_local("news", [], []) == 1
        writer.transport.abort()


def _connected(server: Running) -> int:
    return sum(1 for _ in server.manager.get_participants("/", None))


async def test_a_polling_client_that_does_not_poll_is_cut() -> None:
    async with (
        running(socket_max_buffer_bytes=200_000) as server,
        httpx.AsyncClient(base_url=server.url) as http,
    ):
        sid = await poll_in(http)
        url = f"/v1/updates/?EIO=4&transport=polling&sid={sid}"
        assert (await http.post(url, content="40")).text == "OK"
        await until(lambda: _connected(server) == 1)
        for _ in range(5):
            server.manager.emit_local("news", ["x" * 50_000], [])
        await until(lambda: [reason for _, reason in server.closed] == ["transport error"])
        assert server.sio.slow_clients == 1
        await http.get(url)


async def poll_in(http: httpx.AsyncClient) -> str:
    answer = await http.get("/v1/updates/?EIO=4&transport=polling")
    sid: str = httpx.Response(200, text=answer.text[1:]).json()["sid"]
    return sid


@pytest.mark.parametrize("dead", [True, False])
async def test_ping_timeout_and_heard(dead: bool) -> None:
    timeout = 100 if dead else 20_000
    # The first ping is to come after what nobody asked for, also on a busy machine.
    async with running(ping_interval=1000, ping_timeout=timeout) as server, server.raw() as ws:
        sid = next(iter(server.manager._namespaces["/"].connected))
        await ws.send("3")  # a pong that nobody asked for means nothing
        assert await receive(ws) == "2"
        assert server.heard == []
        if dead:
            await until(lambda: server.closed == [(sid, "ping timeout")])
            assert server.heard == []
        else:
            for beats in range(1, 3):
                await ws.send("3")
                await until(lambda beats=beats: server.heard == [sid] * beats)
                assert await receive(ws) == "2"
            assert server.closed == []


async def test_ping_timeout_of_a_polling_client() -> None:
    async with (
        running(ping_interval=1000, ping_timeout=100) as server,
        httpx.AsyncClient(base_url=server.url) as http,
    ):
        sid = await poll_in(http)
        await http.post(f"/v1/updates/?EIO=4&transport=polling&sid={sid}", content="40")
        await until(lambda: [reason for _, reason in server.closed] == ["ping timeout"])
        await until(server.nothing_left)


async def test_a_client_that_joins_no_namespace_is_closed() -> None:
    async with running() as server:
        server.sio.join_timeout_s = 0.05
        async with server.raw(join=False) as ws:
            with pytest.raises(websockets.ConnectionClosed):
                await receive(ws)
        server.sio.join_timeout_s = WAIT_S
        async with server.raw() as ws:
            server.sio.join_timeout_s = 0.05
            await ws.send("41")
            with pytest.raises(websockets.ConnectionClosed):
                await receive(ws)
        server.sio.join_timeout_s = WAIT_S
        async with server.client() as client:
            assert [socket.peer.join_timer for socket in server.sio.eio.sockets.values()] == [None]
            server.sio.join_timeout_s = 0.05
            await server.sio.disconnect(client.get_sid())
            await until(server.nothing_left)


async def test_fragments_and_largest_message() -> None:
    async with running(max_payload_bytes=10_000) as server:
        server.sio.direct["x"] = lambda sid, args, reply: server.manager.emit_local("back", args, [sid])
        async with server.raw() as ws:
            await ws.send(['42["x","', "a" * 4000, "ü" * 1000, '"]'])
            assert await receive_event(ws) == ["back", "a" * 4000 + "ü" * 1000]
            await ws.send('42["x","' + "b" * 9000 + '"]')
            assert await receive_event(ws) == ["back", "b" * 9000]
        for message in ('42["x","' + "x" * 10_001 + '"]', ['42["x","' + "x" * 6000, "x" * 6000 + '"]']):
            async with server.raw() as ws:
                with pytest.raises(websockets.ConnectionClosed):
                    await send_all(ws, [message])
        async with httpx.AsyncClient(base_url=server.url) as http:
            sid = await poll_in(http)
            url = f"/v1/updates/?EIO=4&transport=polling&sid={sid}"
            assert (await http.post(url, content="4" + "x" * 10_001)).status_code == 400
            assert (await http.post(url, content="40")).status_code == 400
            await until(server.nothing_left)


async def test_many_packets_in_one_post() -> None:
    """python-engineio takes 16 and loses the rest; a browser that was busy sends more."""
    async with running() as server:
        got: list[Any] = []
        server.sio.direct["n"] = lambda sid, args, reply: got.extend(args)
        async with httpx.AsyncClient(base_url=server.url) as http:
            url = f"/v1/updates/?EIO=4&transport=polling&sid={await poll_in(http)}"
            await http.post(url, content="40")
            await until(lambda: _connected(server) == 1)
            body = "\x1e".join(f'42["n",{number}]' for number in range(200))
            assert (await http.post(url, content=body)).text == "OK"
            assert got == list(range(200))
            assert (await http.post(url, content="1")).text == "OK"
            assert [reason for _, reason in server.closed] == ["client disconnect"]
            while (await http.get(url)).status_code == 200:
                pass


async def test_an_upgrade_that_goes_wrong_leaves_polling_alone() -> None:
    async with running() as server, httpx.AsyncClient(base_url=server.url) as http:
        sid = await poll_in(http)
        url = f"/v1/updates/?EIO=4&transport=polling&sid={sid}"
        await http.post(url, content="40")
        for steps in (["x"], ["2probe", "x"], ["2probe"], [], [b"2probe"]):
            async with websockets.connect(server.raw_url(f"EIO=4&transport=websocket&sid={sid}")) as ws:
                for step in steps:
                    await ws.send(step)
                if steps[:1] == ["2probe"]:
                    assert await receive(ws) == "3probe"
            await until(lambda: not server.sio.eio.sockets[sid].upgrading)
        async with websockets.connect(server.raw_url(f"EIO=4&transport=websocket&sid={sid}")) as ws:
            await until(lambda: server.sio.eio.sockets[sid].upgrading)
            async with websockets.connect(server.raw_url(f"EIO=4&transport=websocket&sid={sid}")) as second:
                with pytest.raises(websockets.ConnectionClosed):
                    await receive(second)
        await until(lambda: not server.sio.eio.sockets[sid].upgrading)
        server.manager.emit_local("still", [], [])
        text = ""
        while "still" not in text:
            text = (await http.get(url)).text
        await http.post(url, content="1")
        assert (await http.get(url)).text == "1"
