"""The socket engine with real clients: python-socketio's, raw WebSockets, raw HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest
import socketio
import websockets
from socketio.exceptions import ConnectionRefusedError as Refused

from .running import WAIT_S, receive, receive_event, running, until

TRANSPORTS = [("websocket",), ("polling",), ("polling", "websocket")]


@pytest.mark.parametrize("transports", TRANSPORTS)
async def test_event_ack_and_broadcast(transports: tuple[str, ...]) -> None:
    async with running() as server:
        server.sio.direct["echo"] = lambda sid, args, reply: reply(*args) if reply else None
        async with server.client(*transports) as client:
            got: asyncio.Queue[Any] = asyncio.Queue()
            client.on("news", got.put_nowait)
            assert await client.call("echo", {"a": [1, "ü"]}, timeout=WAIT_S) == {"a": [1, "ü"]}
            await client.emit("echo", 1)
            await until(lambda: client.transport() == transports[-1])
            assert server.manager.emit_local("news", ["y"], []) == 1
            assert await asyncio.wait_for(got.get(), WAIT_S) == "y"
            assert server.sio.transport(client.get_sid()) == transports[-1]


async def test_connect_payload_environ_and_refusal() -> None:
    async with running(cors_allowed_origins=["*"]) as server:
        seen: list[dict[str, Any]] = []

        async def connect(sid: str, environ: dict[str, Any], auth: Any) -> None:
            seen.append(environ)
            if auth != {"token": "good"}:
                raise Refused("Missing authentication token")
            server.manager.join(sid, "in")

        server.sio.on("connect", connect)
        server.sio.connect_payload = lambda sid: {"replica": "r1"}
        for transport in ("websocket", "polling"):
            client = socketio.AsyncClient(reconnection=False)
            errors: list[Any] = []
            client.on("connect_error", errors.append)
            with pytest.raises(socketio.exceptions.ConnectionError):
                await client.connect(
                    server.url, socketio_path="/v1/updates", transports=[transport], wait_timeout=WAIT_S
                )
            assert errors == [{"message": "Missing authentication token"}]
        await until(server.nothing_left)
        async with websockets.connect(server.raw_url(), additional_headers={"X-Thing": "1"}) as ws:
            await receive(ws)
            await ws.send('40{"token":"good"}')
            answer = json.loads((await receive(ws))[2:])
            assert answer["replica"] == "r1"
            assert server.manager.rooms_of(answer["sid"]) == {"in"}
            assert seen[-1]["HTTP_X_THING"] == "1"
            port = ws.local_address[1]
            assert (seen[-1]["REMOTE_ADDR"], seen[-1]["REMOTE_PORT"]) == ("127.0.0.1", str(port))
            assert seen[-1]["asgi.scope"]["client"] == ("127.0.0.1", port)
            assert seen[-1]["QUERY_STRING"] == "EIO=4&transport=websocket"
            assert server.sio.get_environ(answer["sid"]) is seen[-1]
        polling = [environ for environ in seen if "polling" in environ["QUERY_STRING"]]
        assert polling[0]["REMOTE_PORT"] != "0"


async def test_events_of_python_socketio() -> None:
    async with running() as server:
        sio = server.sio

        class Admin(socketio.AsyncNamespace):
            async def on_add(self, sid: str, a: int, b: int) -> int:
                return a + b

        sio.on("double", lambda sid, value: value * 2)
        sio.on("fails", lambda sid: 1 / 0)
        sio.register_namespace(Admin("/admin"))
        gone: list[str] = []
        sio.on("disconnect", lambda sid, reason: gone.append(reason))
        async with server.client(namespaces=["/", "/admin"]) as client:
            assert await client.call("double", 4, timeout=WAIT_S) == 8
            assert await client.call("add", (1, 2), namespace="/admin", timeout=WAIT_S) == 3
            await client.emit("fails")
            await client.emit("nobody handles this")
            client.on("ask", lambda value: value + 1)
            assert await sio.call("ask", 1, to=client.get_sid(), timeout=WAIT_S) == 2
            await sio.save_session(client.get_sid(), {"a": 1})
            assert await sio.get_session(client.get_sid()) == {"a": 1}
            await sio.disconnect(client.get_sid())
            await until(lambda: gone == ["server disconnect"])
            await until(lambda: client.namespaces.keys() == {"/admin"})
        with pytest.raises(socketio.exceptions.ConnectionError):
            async with server.client(namespaces=["/unknown"]):
                pass


async def test_a_failing_direct_handler_breaks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as server, server.client() as client:
        replies: list[Any] = []

        def handler(sid: str, args: list[Any], reply: Any) -> None:
            replies.append(reply)
            if args == ["fail"]:
                raise RuntimeError("no")
            reply(1)
            reply(2)

        server.sio.direct["x"] = handler
        await client.emit("x", "fail")
        assert await client.call("x", timeout=WAIT_S) == 1
        assert replies[0] is None
        with pytest.raises(TypeError):
            server.sio.send_event(client.get_sid(), "e", object())
        assert [record.getMessage() for record in caplog.records] == ["the handler of x failed"]


async def test_a_reply_is_sent_once() -> None:
    async with running() as server, server.raw() as ws:

        def handler(sid: str, args: list[Any], reply: Any) -> None:
            with pytest.raises(TypeError):
                reply(object())
            reply(1)
            reply(2)

        server.sio.direct["x"] = handler
        await ws.send('420["x"]')
        assert await receive(ws) == "430[1]"
        server.manager.emit_local("next", [], [])
        assert await receive(ws) == '42["next"]'


async def test_send_event_and_acks() -> None:
    async with running() as server, server.raw() as ws:
        sid = next(iter(server.manager._namespaces["/"].connected))
        sio = server.sio
        answers: list[Any] = []
        assert sio.send_event("nobody", "e") == 0
        assert sio.send_event(sid, "e", 1, 2) == 1
        assert await receive_event(ws) == ["e", 1, 2]
        first = sio.send_event(sid, "e", on_ack=answers.append)
        second = sio.send_event(sid, "e", on_ack=answers.append)
        failing = sio.send_event(sid, "e", on_ack=lambda args: 1 / 0)
        sio.forget_ack(sid, first)
        sio.forget_ack("nobody", 1)
        for ack_id in (first, failing, second, second, 999, 0):
            await ws.send(f'43{ack_id}["a",1]')
        binary = sio.send_event(sid, "e", on_ack=answers.append)
        await ws.send(f'461-{binary}[{{"_placeholder":true,"num":0}}]')
        await ws.send(b"raw")
        await until(lambda: len(answers) == 2)
        assert answers == [["a", 1], [b"raw"]]
        sio.send_event(sid, "e", on_ack=answers.append)
    assert server.manager.callbacks == {}


@pytest.mark.parametrize(("reason", "packets"), [("server disconnect", ["41"]), ("server shutting down", [])])
async def test_close_socket(reason: str, packets: list[str]) -> None:
    async with running() as server, server.raw() as ws:
        handled: list[str] = []

        async def disconnect(sid: str, why: str) -> None:
            await asyncio.sleep(0)
            assert server.sio.get_environ(sid)["REQUEST_METHOD"] == "GET"
            assert await server.sio.get_session(sid) == {"name": "x"}
            assert server.manager.rooms_of(sid) == {"room"}
            handled.append(why)

        server.sio.on("disconnect", disconnect)
        sid = next(iter(server.manager._namespaces["/"].connected))
        server.manager.join(sid, "room")
        await server.sio.save_session(sid, {"name": "x"})
        server.sio.close_socket("nobody")
        server.sio.close_socket(sid, reason)
        assert server.closed == [(sid, reason)], "told at once, not when the client answers"
        server.sio.close_socket(sid, reason)
        got = []
        with contextlib.suppress(websockets.ConnectionClosed):
            got = [await receive(ws) for _ in packets]
            await receive(ws)
        assert got == packets
        await until(lambda: handled == [reason])
        assert server.closed == [(sid, reason)]


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ("41", "client disconnect"),
        ("1", "client disconnect"),
        (1000, "client disconnect"),
        (1001, "transport close"),
        (None, "transport close"),
    ],
)
async def test_reasons(last: str | int | None, reason: str) -> None:
    async with running() as server:
        async with server.raw() as ws:
            if last is None:
                ws.transport.abort()
            elif isinstance(last, int):
                await ws.close(last)
            else:
                await ws.send(last)
        await until(lambda: [why for _, why in server.closed] == [reason])
    async with running() as server:
        async with server.client("polling") as client:
            sid = client.get_sid()
        await until(lambda: server.closed == [(sid, "client disconnect")])


async def test_a_client_that_leaves_while_its_connect_handler_runs() -> None:
    async with running() as server:
        agreed = asyncio.Event()
        entered = asyncio.Event()
        gone: list[str] = []

        async def connect(sid: str, environ: Any, auth: Any) -> None:
            entered.set()
            await agreed.wait()
            server.manager.join(sid, "room")

        server.sio.on("connect", connect)
        server.sio.on("disconnect", lambda sid, reason: gone.append(reason))
        async with server.raw(join=False) as ws:
            await ws.send("40")
            await asyncio.wait_for(entered.wait(), WAIT_S)
        await until(lambda: not server.sio.eio.sockets)
        agreed.set()
        await until(lambda: gone == ["client disconnect"])
        assert len(server.closed) == 1
        await until(server.nothing_left)


async def test_a_failing_connect_handler_refuses() -> None:
    async with running() as server:
        server.sio.on("connect", lambda sid, environ, auth: 1 / 0)
        async with server.raw(join=False) as ws:
            await ws.send('40{"a":1}')
            assert await receive(ws) == '44{"message":"Internal error"}'
            assert not server.manager.get_namespaces()


async def test_packets_sent_before_connect_is_answered_keep_their_order() -> None:
    async with running() as server:
        got: list[Any] = []
        go = asyncio.Event()

        async def connect(sid: str, environ: Any, auth: Any) -> None:
            await go.wait()

        server.sio.on("connect", connect)
        server.sio.direct["n"] = lambda sid, args, reply: got.extend(args)
        async with server.raw(join=False) as ws:
            for message in ("40", '42["n",1]', '42["n",2]', "41", '42["n",3]'):
                await ws.send(message)
            go.set()
            await until(lambda: server.closed)
            assert got == [1, 2]
