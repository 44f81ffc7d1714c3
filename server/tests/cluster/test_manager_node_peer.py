"""One cluster of a Node server and ours: every message in both directions."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import socketio

from moorage.cluster import RedisStreamsManager

from ..valkey import Valkey
from .nodes import FakeSocket, Node

PACKAGES = Path(__file__).parents[3] / "chaos" / "peers" / "node"
Until = Callable[..., Awaitable[None]]

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(
        shutil.which("node") is None or not (PACKAGES / "node_modules").is_dir(),
        reason="needs Node.js and `make node`",
    ),
]


class Peer:
    """The Node server and one client of it, which is in the room `all`."""

    async def start(self, url: str, **environment: str) -> Peer:
        self.numbers = itertools.count()
        self.process = await asyncio.create_subprocess_exec(
            "node",
            str(Path(__file__).with_name("peer.mjs")),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "REDIS_URL": url, "PACKAGES": str(PACKAGES), **environment},
        )
        port = self.port = (await self.line())["port"]
        self.got: list[Any] = []
        self.client = socketio.AsyncClient(reconnection=False)

        @self.client.on("*")
        def everything(event: str, *args: Any) -> Any:
            self.got.append([event, *args])
            return {"ack": "node"}

        await self.client.connect(f"http://127.0.0.1:{port}", transports=["websocket"])
        self.sid = self.client.get_sid()
        return self

    async def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = await asyncio.wait_for(self.process.stdout.readline(), 20)
        return dict(json.loads(text))

    async def do(self, what: str, **arguments: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(
            json.dumps({"id": next(self.numbers), "do": what, **arguments}).encode() + b"\n"
        )
        answer = await self.line()
        assert "error" not in answer, answer
        return answer["result"]

    async def hear(self, manager: RedisStreamsManager, until: Until) -> None:
        """Until its client hears all that ``manager`` sends; nothing of this is left in ``got``.

        Node takes the stream's end anew with each read until it has read something, so first entries are lost.
        """
        while not self.got:
            manager.emit_now("warm", [], ["all"])
            await asyncio.sleep(0.02)
        manager.emit_now("warm", ["the last"], ["all"])
        await until(lambda: self.got[-1][:2] == ["warm", "the last"])  # and an offset, with recovery
        self.got.clear()

    async def stop(self) -> None:
        await self.client.disconnect()
        await self.client.eio.disconnect()
        assert self.process.stdin is not None
        self.process.stdin.close()
        await asyncio.wait_for(self.process.wait(), 10)
        self.process._transport.close()  # type: ignore[attr-defined]


@pytest_asyncio.fixture
async def pair(valkey: Valkey, until: Until) -> AsyncIterator[tuple[Peer, Node, FakeSocket]]:
    peer = await Peer().start(valkey.url)
    node = await Node(valkey.url).start()
    socket = await node.client("py", "all")
    await until(lambda: valkey.client.pubsub_numsub("socket.io#/#")[0][1] == 2)
    await peer.hear(node.manager, until)
    socket.got.clear()
    yield peer, node, socket
    await node.stop()
    await peer.stop()


async def test_events(pair: tuple[Peer, Node, FakeSocket], until: Until) -> None:
    peer, node, socket = pair
    await peer.do("emit", rooms=["all"], event="text", args=[1, {"a": None}, "é\u2028"])
    await peer.do("emit", rooms=["all"], event="bytes", args=[{"$bytes": "AP8="}])
    await peer.do("emit", rooms=["all"], **{"except": ["py"]}, event="not for us", args=[])
    await peer.do("date", rooms="all")
    await until(lambda: len(socket.got) == 3)
    assert socket.got[0] == ["text", 1, {"a": None}, "é\u2028"]
    assert socket.got[1] == ["bytes", {"_placeholder": True, "num": 0}, b"\x00\xff"]
    assert socket.got[2][:2] == ["date", "1970-01-01T00:00:00.000Z"]
    await until(lambda: len(peer.got) == 4)
    peer.got.clear()
    node.manager.emit_now("text", [1, {"a": None}, "é\u2028\ud800"], ["all"])
    node.manager.emit_now("bytes", [b"\x00\xff"], [])
    node.manager.emit_now("not for them", [], ["all"], [peer.sid])
    await node.manager.emit_counted("k", "update", {"x": 1}, ["all"])
    await until(lambda: len(peer.got) == 3)
    assert peer.got == [
        ["text", 1, {"a": None}, "é\u2028\ufffd"],
        ["bytes", b"\x00\xff"],
        ["update", {"x": 1, "seq": 1}],
    ]
    await until(lambda: len(socket.got) == 7)


async def test_rooms_and_disconnect(pair: tuple[Peer, Node, FakeSocket], until: Until) -> None:
    peer, node, _ = pair
    await peer.do("join", sid="py", room="joined")
    await until(lambda: "joined" in node.manager.rooms_of("py"))
    await peer.do("leave", sid="py", room="joined")
    await until(lambda: "joined" not in node.manager.rooms_of("py"))
    await node.server.enter_room(peer.sid, 5)
    node.manager.emit_now("five", [], ["5"])
    await until(lambda: peer.got == [["five"]])
    await node.server.leave_room(peer.sid, 5)
    node.manager.emit_now("five", [], ["5"])
    node.manager.emit_now("end", [], [])
    await until(lambda: peer.got[-1] == ["end"])
    assert len(peer.got) == 2
    await peer.do("disconnect", sid="py", close=False)
    await until(lambda: not node.manager.is_connected("py", "/"))
    await node.server.disconnect(peer.sid)
    await until(lambda: not peer.client.connected)


async def test_questions(pair: tuple[Peer, Node, FakeSocket], until: Until) -> None:
    peer, node, socket = pair
    node.manager.socket_data = lambda namespace, sid: {"from": "python"}
    requests = node.manager.requests
    found, complete = await requests.fetch_sockets(["all"])
    assert complete
    assert {s.id: s.data for s in found} == {"py": {"from": "python"}, peer.sid: {"from": "node"}}
    theirs = {s["id"]: s for s in await peer.do("fetch", rooms="all")}
    assert theirs["py"] == {"id": "py", "rooms": ["all", "py"], "data": {"from": "python"}, "handshake": []}
    assert theirs.keys() == {"py", peer.sid}

    assert await requests.emit_with_ack(peer.sid, "ask", [1], 3000) == ([{"ack": "node"}], True)
    asked = asyncio.create_task(peer.do("ack", rooms="py", event="ask", args=[2]))
    await until(lambda: socket.asked)
    await socket.ack({"ack": "python"})
    assert await asked == [{"ack": "python"}]

    requests.handlers["double"] = lambda number: number * 2
    assert await requests.server_side_emit("double", [21], 3000) == ([42], True)
    assert await peer.do("serverSide", event="double", args=[4]) == [8]
    assert await peer.do("serverSide", event="nobody handles this", args=[]) == [None]
