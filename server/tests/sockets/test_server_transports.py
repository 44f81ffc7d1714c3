"""Transports: binary, upgrades, long polling, origins, what uvicorn does with its other routes and at its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import httpx
import pytest
import socketio
import websockets
from fastapi import FastAPI, WebSocket

from moorage.cluster.local import LocalManager
from moorage.sockets.websocket import DirectSocket

from .running import WAIT_S, Running, receive, receive_event, running, until

TRANSPORTS = [("websocket",), ("polling",), ("polling", "websocket")]


@pytest.mark.parametrize("transports", TRANSPORTS)
async def test_binary_both_ways(transports: tuple[str, ...]) -> None:
    async with running() as server:
        server.sio.direct["echo"] = lambda sid, args, reply: reply(*args) if reply else None
        async with server.client(*transports) as client:
            sent = {"x": [b"\x00\xff" * 100, "between", b""], "y": b"1"}
            assert await client.call("echo", sent, timeout=WAIT_S) == sent


async def test_binary_broadcast_to_mixed_transports() -> None:
    async with running() as server, contextlib.AsyncExitStack() as stack:
        heard: list[list[Any]] = []
        for transports in (("websocket",), ("polling",), ("polling", "websocket"), ("websocket",)):
            client = await stack.enter_async_context(server.client(*transports))
            heard.append([])
            client.on("news", heard[-1].append)
        sent = [{"n": number, "raw": bytes([number]) * 200} for number in range(40)]
        for news in sent:
            server.manager.emit_local("news", [news], [])
        await until(lambda: heard == [sent] * 4)


async def test_attachments_are_never_interleaved() -> None:
    async with running() as server, server.raw() as ws:

        async def emit(number: int) -> None:
            await server.sio.emit("news", [bytes([number]), bytes([number])])

        await asyncio.gather(*[emit(number) for number in range(50)])
        for _ in range(50):
            assert (await receive(ws)).startswith("452-")
            assert await receive(ws) == await receive(ws)


async def test_order_is_kept_over_an_upgrade() -> None:
    async with running() as server:
        client = socketio.AsyncClient(reconnection=False)
        got: list[int] = []
        client.on("n", got.append)
        sent = 0

        async def stream() -> None:
            nonlocal sent
            while sent < 400:
                if server.manager.get_namespaces() and server.manager.emit_local("n", [sent], []):
                    sent += 1
                await asyncio.sleep(0.0005)

        task = asyncio.create_task(stream())
        await client.connect(
            server.url, socketio_path="/v1/updates", transports=["polling", "websocket"], wait_timeout=WAIT_S
        )
        await asyncio.wait_for(task, WAIT_S)
        await until(lambda: len(got) == 400)
        assert got == list(range(400))
        assert client.transport() == "websocket"
        await client.shutdown()


async def test_what_is_queued_moves_over_with_an_upgrade() -> None:
    async with running() as server, httpx.AsyncClient(base_url=server.url) as http:
        urls = []
        for _ in range(2):
            url = "/v1/updates/?EIO=4&transport=polling"
            url += "&sid=" + json.loads((await http.get(url)).text[1:])["sid"]
            await http.post(url, content="40")
            assert (await http.get(url)).text.startswith("40")
            urls.append(url)
        moving, staying = urls
        sid = moving.partition("&sid=")[2]
        async with websockets.connect(server.raw_url(f"EIO=4&transport=websocket&sid={sid}")) as ws:
            await ws.send("2probe")
            assert await receive(ws) == "3probe"
            assert (await http.get(moving)).text == "6"
            server.manager.emit_local("a", [b"\x01"], [])
            server.manager.emit_local("b", [], [])
            # Its answer puts base64 into python-engineio's cache of the very same packets.
            assert (await http.get(staying)).text.split("\x1e")[1:] == ["bAQ==", '42["b"]']
            assert (await http.get(moving)).text == "6"
            await ws.send("5")
            assert (await receive(ws)).startswith("451-")
            assert [await receive(ws) for _ in range(2)] == [b"\x01", '42["b"]']
            assert (await http.get(moving)).status_code == 400
        await http.post(staying, content="1")
        assert (await http.get(staying)).text == "1"


async def test_close_socket_of_a_polling_client_is_delivered() -> None:
    async with running() as server, server.client("polling") as client:
        ended = asyncio.Event()
        client.on("disconnect", ended.set)
        server.sio.close_socket(client.get_sid())
        await asyncio.wait_for(ended.wait(), WAIT_S)
    async with running() as server, httpx.AsyncClient(base_url=server.url) as http:
        url = "/v1/updates/?EIO=4&transport=polling"
        url += "&sid=" + json.loads((await http.get(url)).text[1:])["sid"]
        await http.post(url, content="40")
        assert (await http.get(url)).text.startswith("40")
        server.sio.close_socket(next(iter(server.manager._namespaces["/"].connected)))
        answers = [(await http.get(url)).text for _ in range(2)]
        assert answers == ["41", "1"], "not in one answer, or Node's client takes it for a lost transport"
        await server.sio.eio.disconnect("nobody")
        async with server.raw() as ws:
            await server.sio.eio.disconnect()
            with pytest.raises(websockets.ConnectionClosed):
                await receive(ws)


async def test_polling_with_a_session_of_another_replica(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as server, httpx.AsyncClient(base_url=server.url) as http:
        for method in ("GET", "POST", "GET"):
            answer = await http.request(
                method, "/v1/updates/?EIO=4&transport=polling&sid=elsewhere", headers={"Origin": "https://a"}
            )
            assert answer.status_code == 400
            assert answer.json() == {"code": 1, "message": "Session ID unknown"}
            assert answer.headers["access-control-allow-origin"] == "https://a"
        answer = await http.get("/v1/updates/?EIO=3&transport=polling")
        assert answer.json() == {"code": 5, "message": "Unsupported protocol version"}
        answer = await http.get("/v1/updates/?EIO=4&transport=pigeon")
        assert answer.json() == {"code": 0, "message": "Transport unknown"}
        assert (await http.get("/elsewhere")).content == b"other"
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(server.raw_url("EIO=4&transport=websocket&sid=elsewhere"))
        assert refused.value.response.status_code == 400
    hints = [record.getMessage() for record in caplog.records if "affinity" in record.getMessage()]
    assert len(hints) <= 1, "the hint is rate limited"


async def test_origins() -> None:
    async with running(cors_allowed_origins=["https://good"]) as server:
        async with websockets.connect(server.raw_url(), origin="https://good") as ws:
            await receive(ws)
        for query in ("EIO=4&transport=websocket", "EIO=3&transport=websocket", "EIO=4&transport=polling"):
            origin = "https://bad" if query == "EIO=4&transport=websocket" else "https://good"
            with pytest.raises(websockets.InvalidStatus) as refused:
                await websockets.connect(server.raw_url(query), origin=origin)
            assert refused.value.response.status_code == 400
        async with httpx.AsyncClient(base_url=server.url) as http:
            url = "/v1/updates/?EIO=4&transport=polling"
            assert (await http.get(url, headers={"Origin": "https://bad"})).status_code == 400
            assert (await http.get(url, headers={"Origin": "https://good"})).status_code == 200
        assert not server.manager.get_namespaces()
        for socket in list(server.sio.eio.sockets.values()):
            socket.close_now("server disconnect", abort=True)
            await socket.poll()


async def test_other_websockets_and_routes_are_untouched() -> None:
    app = FastAPI()

    @app.websocket("/v1/stream")
    async def stream(ws: WebSocket) -> None:
        await ws.accept()
        await ws.send_text(await ws.receive_text() + "!")
        await ws.close()

    async with running(app) as server, websockets.connect(f"ws://127.0.0.1:{server.port}/v1/stream") as ws:
        await ws.send("hi")
        assert await receive(ws) == "hi!"


async def test_shutdown_of_uvicorn_closes_sockets_so_that_they_come_back() -> None:
    found: list[Running] = []
    code = 0

    async def hold() -> None:
        nonlocal code
        async with websockets.connect(found[0].raw_url()) as ws:
            await ws.send("40")
            try:
                while True:
                    assert await receive(ws) != "41"
            except websockets.ConnectionClosed as closed:
                code = closed.rcvd.code if closed.rcvd else 0

    async with running() as server:
        found.append(server)
        task = asyncio.create_task(hold())
        await until(server.manager.get_namespaces)
    await asyncio.wait_for(task, WAIT_S)
    assert code == 1012
    assert [reason for _, reason in server.closed] == ["server shutting down"]


async def test_shutdown_of_uvicorn_ends_polls_that_wait() -> None:
    async with httpx.AsyncClient() as http:
        async with running() as server:
            url = f"{server.url}/v1/updates/?EIO=4&transport=polling"
            sid = json.loads((await http.get(url)).text[1:])["sid"]
            url += f"&sid={sid}"
            await http.post(url, content="40")
            await http.get(url)
            poll = asyncio.create_task(http.get(url))
            await until(lambda: server.sio.eio.sockets[sid].queue._getters)
        assert (await poll).text == "1"


async def test_broadcasts_of_one_turn_leave_together_and_in_order() -> None:
    async with running() as server, server.raw() as first, server.raw() as second:
        manager: LocalManager = server.manager
        writes: list[int] = []
        await until(lambda: len(list(manager.get_participants("/", None))) == 2)
        sockets = list(server.sio.eio.sockets.values())
        for socket in sockets:
            assert isinstance(socket, DirectSocket)
            write = socket._write
            socket._write = lambda data, write=write: (writes.append(len(data)), write(data))  # type: ignore[misc]
        sid = next(iter(manager.get_participants("/", None)))[0]
        for n in range(3):
            manager.emit_local("all", [n], [])
        server.sio.send_event(sid, "one", 3)  # to one socket, but behind what waits for it
        manager.emit_local("all", [4], [])
        assert writes == []
        seen = [[await receive_event(ws) for _ in range(count)] for ws, count in ((first, 5), (second, 4))]
        orders = sorted(([event[-1] for event in events] for events in seen), key=len)
        assert orders == [[0, 1, 2, 4], [0, 1, 2, 3, 4]]
        assert len(writes) == 2
        server.sio.send_event(sid, "alone", 5)
        assert len(writes) == 3


async def test_what_was_posted_is_sent_before_a_close_and_dropped_by_a_cut() -> None:
    async with running() as server, server.raw() as closed, server.raw() as cut:
        await until(lambda: len(list(server.manager.get_participants("/", None))) == 2)
        sockets = list(server.sio.eio.sockets.values())
        server.manager.emit_local("last", ["x"], [])
        sockets[0].close_now("server disconnect")
        sockets[1].close_now("transport error", abort=True)
        events = []
        for ws in (closed, cut):
            try:
                events.append(await receive_event(ws))
            except websockets.ConnectionClosed:
                events.append(None)
        assert events == [["last", "x"], None]


async def test_much_that_is_posted_does_not_wait() -> None:
    async with running() as server, server.raw() as first, server.raw():
        await until(lambda: len(list(server.manager.get_participants("/", None))) == 2)
        for n in range(4):
            server.manager.emit_local("much", [n, "x" * 40_000], [])
            assert all(socket.unsent < 110_000 for socket in server.sio.eio.sockets.values())
        assert [(await receive_event(first))[1] for _ in range(4)] == [0, 1, 2, 3]
