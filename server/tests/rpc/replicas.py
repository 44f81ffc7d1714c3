"""Replicas without sockets: backplane, membership, registry and calls over a real Redis, in one event loop.

A socket is an entry in ``Replica.sockets``; ``answer`` decides what it does with a request.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from moorage.cluster.membership import Membership
from moorage.rpc.calls import Calls
from moorage.rpc.here import Here
from moorage.rpc.registry import Registry, rpc_room
from moorage.rpc.remote import Remote
from moorage.rpc.serving import Serving
from moorage.rpc.wiring import connect
from moorage.settings import load
from moorage.storage.backplane import Backplane

KEY = "k" * 32


class Socket:
    """A fake daemon or caller. ``answer``: called with each request's params; None leaves it unanswered."""

    def __init__(self, answer: Callable[[Any], Any] | None = None) -> None:
        self.answer = answer
        self.events: list[tuple[str, Any]] = []
        self.ran: list[str] = []
        self.pending: dict[str, Callable[[list[Any]], None]] = {}

    def received(self, event: str) -> list[Any]:
        return [payload for name, payload in self.events if name == event]


class Replica:
    def __init__(self, name: str, url: str, **settings: Any) -> None:
        self.name = name
        self.settings = load(replica_id=name, redis_url=url, secret_key=KEY, **settings)
        self.sockets: dict[str, Socket] = {}
        self._acks = itertools.count(1)
        self._waiting: dict[int, str] = {}
        self.registry = Registry(name)
        self.serving = Serving(self._send_event, lambda sid, ack: None)
        self.backplane = Backplane(url, name=name)
        self.membership = Membership(self.settings, self.backplane)
        self.remote = Remote(self.membership, self.serving, self.settings.recovery_window_ms / 1000)
        self.calls = Calls(self.settings, self.registry, Here(self.serving), self.remote)
        self.calls.notify = lambda sid, event, payload: self._send_event(sid, event, payload)
        connect(self.membership, self.registry, self.remote)

    async def __aenter__(self) -> Replica:
        self.membership.begin()
        assert await self.backplane.start()
        assert await self.membership.synced()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.membership.stop()
        await self.backplane.stop()

    async def die(self) -> None:
        """As by SIGKILL: the connections close and nothing is said."""
        self.membership._closing = True
        if self.membership._timer:
            self.membership._timer.cancel()
        await self.backplane.stop()

    def _send_event(
        self, sid: str, event: str, payload: Any, on_ack: Callable[[list[Any]], None] | None = None
    ) -> int:
        socket = self.sockets.get(sid)
        if socket is None:
            return 0
        socket.events.append((event, payload))
        if event == "rpc-request" and on_ack is not None:
            request_id = payload["requestId"]
            socket.ran.append(request_id)
            socket.pending[request_id] = on_ack
            if socket.answer is not None:
                answer = socket.answer(payload["params"])
                asyncio.get_running_loop().call_soon(lambda: self.ack(sid, request_id, answer))
        return next(self._acks)

    def ack(self, sid: str, request_id: str, answer: Any) -> None:
        socket = self.sockets.get(sid)
        if socket is not None and (on_ack := socket.pending.pop(request_id, None)) is not None:
            on_ack([answer])

    def daemon(
        self, sid: str, method: str, answer: Callable[[Any], Any] | None = None, resumable: bool = False
    ) -> Socket:
        socket = self.sockets.setdefault(sid, Socket(answer))
        self.registry.join(rpc_room("acc", method), sid, resumable)
        return socket

    def hang_up(self, sid: str) -> None:
        """The socket closes."""
        del self.sockets[sid]
        for entry in [e for room in list(self.registry._rooms.values()) for e in list(room.values())]:
            if entry.sid == sid and entry.replica == self.name:
                self.registry.leave(entry.room, sid)
        self.serving.closed(sid)
        self.calls.caller_gone(sid)

    def start(
        self, method: str, params: Any = None, sid: str = "caller", **extra: Any
    ) -> asyncio.Future[Any]:
        """One attempt of ``rpc-call``; the future is the ack."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.sockets.setdefault(sid, Socket())
        payload = {"method": method, "params": params, **extra}
        self.calls.start(sid, "acc", payload, future.set_result)
        return future

    async def call(self, method: str, params: Any = None, **extra: Any) -> Any:
        return await asyncio.wait_for(self.start(method, params, **extra), 10)


async def until(condition: Callable[[], bool], bound_s: float = 10.0) -> None:
    """Wait until ``condition`` holds."""
    async with asyncio.timeout(bound_s):
        while not condition():
            await asyncio.sleep(0.002)
