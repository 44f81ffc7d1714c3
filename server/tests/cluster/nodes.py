"""Nodes for cluster tests: a real python-socketio server with our manager, and sockets that only remember."""

from __future__ import annotations

import json
import re
from typing import Any

import socketio

from moorage.cluster import RedisStreamsManager
from moorage.cluster.packets import Encoded
from moorage.storage.backplane import Backplane


class FakeSocket:
    """A connected client: what was written to it, as ``[event, *args]``; acks by hand."""

    behind = False
    closed = False

    def __init__(self, node: Node, sid: str) -> None:
        self.node, self.sid = node, sid
        self.got: list[list[Any]] = []
        self.asked: list[int] = []

    def post(self, packet: Encoded) -> None:
        self.push(packet)

    def push(self, packet: Encoded) -> None:
        found = re.match(r"[25](?:\d+-)?(?:/[^,]*,)?(\d*)(\[.*)", packet.text.decode())
        assert found is not None
        if found[1]:
            self.asked.append(int(found[1]))
        self.got.append(json.loads(found[2]) + list(packet.attachments))

    async def send(self, packet: object) -> None:
        """What python-socketio writes itself: DISCONNECT."""

    async def close(self, **options: object) -> None:
        """The transport ends."""

    async def ack(self, *args: Any) -> None:
        await self.node.manager.trigger_callback(self.sid, self.asked.pop(0), list(args))

    @property
    def events(self) -> list[str]:
        return [event[0] for event in self.got]


class Node:
    """One replica. ``await Node(url).start()``; end it with :meth:`stop`."""

    def __init__(self, url: str, *, timeout_ms: int = 400, stall_ms: int = 100, **options: Any) -> None:
        self.backplane = Backplane(url, name="node", timeout_ms=timeout_ms, stall_ms=stall_ms)
        self.manager = RedisStreamsManager(self.backplane, **options)
        self.server = socketio.AsyncServer(client_manager=self.manager, async_mode="asgi")

    async def start(self) -> Node:
        assert await self.backplane.start()
        assert await self.manager.start()
        return self

    async def stop(self) -> None:
        await self.manager.stop()
        await self.backplane.stop()

    async def client(self, sid: str, *rooms: str, namespace: str = "/") -> FakeSocket:
        socket = FakeSocket(self, sid)
        self.server.eio.sockets[f"eio-{sid}{namespace}"] = socket
        assert self.manager.basic_pre_connect(f"eio-{sid}{namespace}", namespace, sid) == sid
        await self.manager.connect(sid, namespace)
        for room in rooms:
            self.manager.join(sid, room, namespace)
        return socket
