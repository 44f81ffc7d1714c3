"""A small cluster to test clients against: python-socketio servers on real sockets that follow the script of a test.

The replicas share one registry in memory. A `Front` stands for the Service: one address, connections to the replica
that the test names next, and everything it carries can be cut or frozen.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import socketio
import uvicorn
from socketio import packet

from moorage.client import Connection

BOUND_S = 10.0


async def until(condition: Callable[[], Any], timeout: float = BOUND_S) -> None:
    """Wait for a condition that no event tells of."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.005)


@dataclass
class Call:
    target: str
    replica: Replica
    ended: asyncio.Future[dict[str, Any]]


class Server(socketio.AsyncServer):  # type: ignore[misc]
    replica: Replica

    async def _send_packet(self, eio_sid: str, pkt: packet.Packet) -> None:
        if pkt.packet_type == packet.CONNECT:
            pkt.data = {**pkt.data, **self.replica.connect_payload}
        await super()._send_packet(eio_sid, pkt)


@dataclass
class Cluster:
    """What all replicas know. `seen`: every event as (replica, sid, event, payload)."""

    token: str = "good"
    refuse: str | None = None
    refused_methods: dict[str, str] = field(default_factory=dict)
    register_delay: float = 0.0
    mute: bool = False  # rpc-call is never answered
    answer: Any = None  # if set: the ack of rpc-call
    scope: str = "cluster"
    replicas: dict[str, Replica] = field(default_factory=dict)
    registry: dict[str, tuple[Replica, str]] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    auths: list[dict[str, Any]] = field(default_factory=list)
    headers: list[str | None] = field(default_factory=list)  # what a proxy on the way sees of a token
    seen: list[tuple[str, str, str, Any]] = field(default_factory=list)
    gone: list[tuple[str, str, str]] = field(default_factory=list)

    def payloads(self, event: str) -> list[Any]:
        return [payload for _, _, name, payload in self.seen if name == event]

    def home(self, method: str) -> str | None:
        """The replica whose socket serves the method."""
        return self.registry[method][0].name if method in self.registry else None


class Replica:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.connect_payload: dict[str, Any] = {"replica": name}
        self.sids: list[str] = []
        self.scripted: str | None = None
        self.told_late: str | None = None
        """The method of which the next that registers is told first that it was superseded."""
        self.port = 0
        self.sio = Server(async_mode="asgi", ping_interval=15, ping_timeout=45)
        self.sio.replica = self
        for name_ in ("connect", "disconnect"):
            self.sio.on(name_, getattr(self, f"_{name_}"))
        for event in ("rpc-register", "rpc-unregister", "rpc-call", "rpc-cancel", "ping"):
            self.sio.on(event, getattr(self, "_" + event.replace("-", "_")))
        self.sio.on("*", self._other)
        cluster.replicas[name] = self

    async def start(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        app = socketio.ASGIApp(self.sio, socketio_path="/v1/updates")
        config = uvicorn.Config(
            app, log_level="error", lifespan="off", ws="websockets-sansio", timeout_graceful_shutdown=1
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)
        # Not serve(): its main loop takes the signals, and looks only every 100 ms whether it should end.
        await self._server.startup(sockets=[self._listener])

    async def stop(self) -> None:
        for sid in list(self.sids):
            await self.sio.disconnect(sid)
        await self._server.shutdown(sockets=[self._listener])
        await self.sio.shutdown()

    # -- what a test does to it --------------------------------------------------------------------------------

    async def drain(self, deadline_s: float = 20.0) -> None:
        await self.sio.emit("server-draining", {"deadlineMs": (time.time() + deadline_s) * 1000})

    async def send(self, event: str, *args: Any) -> None:
        await self.sio.emit(event, args if len(args) != 1 else args[0])

    # -- events --------------------------------------------------------------------------------------------------

    async def _connect(self, sid: str, environ: Any, auth: Any) -> None:
        auth = auth or {}
        self.cluster.auths.append(auth)
        self.cluster.headers.append(environ.get("HTTP_AUTHORIZATION"))
        if self.cluster.refuse is not None:
            raise socketio.exceptions.ConnectionRefusedError(self.cluster.refuse)
        if auth.get("token") != self.cluster.token:
            raise socketio.exceptions.ConnectionRefusedError("Invalid authentication token")
        self.sids.append(sid)

    async def _disconnect(self, sid: str, reason: str) -> None:
        if sid in self.sids:
            self.sids.remove(sid)
        self.cluster.gone.append((self.name, sid, reason))
        for method, owner in list(self.cluster.registry.items()):
            if owner == (self, sid):
                del self.cluster.registry[method]
        for call in self.cluster.calls.values():
            if (call.replica, call.target) == (self, sid) and not call.ended.done():
                call.ended.set_result(failure("target_disconnected", "RPC target disconnected", "unknown"))

    async def _other(self, event: str, sid: str, *args: Any) -> Any:
        self._note(sid, event, args[0] if args else None)
        return {"ok": True}

    async def _ping(self, sid: str, *args: Any) -> dict[str, Any]:
        self._note(sid, "ping", None)
        return {}

    async def _rpc_register(self, sid: str, payload: dict[str, Any]) -> dict[str, Any]:
        self._note(sid, "rpc-register", payload)
        method = payload["method"]
        if method in self.cluster.refused_methods:
            return {"ok": False, "error": self.cluster.refused_methods[method]}
        if self.told_late == method:
            self.told_late = None
            await self.sio.emit("rpc-superseded", {"method": method}, to=sid)
        self.sio.start_background_task(self._confirm, sid, method)
        return {"ok": True}

    async def _confirm(self, sid: str, method: str) -> None:
        await asyncio.sleep(self.cluster.register_delay)
        if sid not in self.sids:
            return
        older = self.cluster.registry.get(method)
        self.cluster.registry[method] = (self, sid)
        if self.scripted == "die before the old one is told" and older is not None:
            older[0].told_late = method
            await self.sio.disconnect(sid)
            return
        if older is not None and older != (self, sid):
            await older[0].sio.emit("rpc-superseded", {"method": method}, to=older[1])
        if self.scripted == "die after registering":
            await self.sio.disconnect(sid)
            return
        await self.sio.emit("rpc-registered", {"method": method, "scope": self.cluster.scope}, to=sid)

    async def _rpc_unregister(self, sid: str, payload: dict[str, Any]) -> None:
        self._note(sid, "rpc-unregister", payload)
        if self.cluster.registry.get(payload["method"]) == (self, sid):
            del self.cluster.registry[payload["method"]]

    async def _rpc_call(self, sid: str, payload: dict[str, Any]) -> dict[str, Any]:
        self._note(sid, "rpc-call", payload)
        if self.cluster.mute:
            await asyncio.get_running_loop().create_future()
        if self.cluster.answer is not None:
            return self.cluster.answer  # type: ignore[no-any-return]
        running = self.cluster.calls.get(payload["requestId"])
        if running is None:
            owner = self.cluster.registry.get(payload["method"])
            if owner is None:
                return failure("not_available", "RPC method not available", "no")
            running = self.request(owner, payload)
        timeout = payload.get("timeoutMs", 30_000) / 1000
        try:
            return await asyncio.wait_for(asyncio.shield(running.ended), timeout)
        except TimeoutError:
            return failure("timeout", "operation has timed out", "yes")

    def request(self, owner: tuple[Replica, str], payload: dict[str, Any]) -> Call:
        """Send `rpc-request` to a socket; the call ends with its ack."""
        replica, target = owner
        call = Call(target, replica, asyncio.get_running_loop().create_future())
        self.cluster.calls[payload["requestId"]] = call

        def answered(*results: Any) -> None:
            if not call.ended.done():
                call.ended.set_result({"ok": True, "result": results[0] if results else "NO RESULT"})

        message = {key: payload.get(key) for key in ("method", "params", "requestId")}
        self.sio.start_background_task(replica.sio.emit, "rpc-request", message, to=target, callback=answered)
        return call

    async def _rpc_cancel(self, sid: str, payload: dict[str, Any]) -> None:
        self._note(sid, "rpc-cancel", payload)
        call = self.cluster.calls.get(payload["requestId"])
        if call is not None and not call.ended.done():
            call.ended.set_result(failure("cancelled", "RPC call cancelled", "yes"))
            await call.replica.sio.emit("rpc-cancel", payload, to=call.target)

    def _note(self, sid: str, event: str, payload: Any) -> None:
        self.cluster.seen.append((self.name, sid, event, payload))


def failure(code: str, error: str, delivered: str) -> dict[str, Any]:
    return {"ok": False, "error": error, "code": code, "delivered": delivered}


class Front:
    """TCP in front of replicas. `next`: names for the coming connections; after them `default`."""

    def __init__(self, replicas: Mapping[str, Any]) -> None:
        """``replicas``: by name; each has a ``port``."""
        self._replicas = replicas
        self.next: list[str] = []
        self.default: str | None = None
        self.frozen = False
        self.accepted = 0
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[Front]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            self.cut()
            if self._tasks:
                await asyncio.wait(list(self._tasks), timeout=BOUND_S)

    def cut(self) -> None:
        """Every connection breaks, without a goodbye."""
        for pair in list(self._pairs):
            for writer in pair:
                writer.transport.abort()

    async def cut_off(self, *connections: Connection) -> None:
        """Cut, and wait until each of these has noticed: one that has not yet passes for connected.

        Looks at its state now and then may come too late: it can be back within milliseconds.
        """
        noticed: set[Connection] = set()
        for connection in connections:

            def changed(state: str, connection: Connection = connection) -> None:
                if state == "disconnected":
                    noticed.add(connection)

            connection.on_state(changed)
        self.cut()
        await until(lambda: len(noticed) == len(connections))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        name = self.next.pop(0) if self.next else self.default
        if name is None:
            writer.transport.abort()
            return
        upstream, downstream = await asyncio.open_connection("127.0.0.1", self._replicas[name].port)
        pair = (writer, downstream)
        self._pairs.add(pair)
        both = [
            asyncio.create_task(self._pump(reader, downstream)),
            asyncio.create_task(self._pump(upstream, writer)),
        ]
        self._tasks.update(both)
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for end in pair:
            end.transport.abort()
        await asyncio.wait(both, timeout=BOUND_S)
        self._tasks.difference_update(both)
        self._pairs.discard(pair)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                if not self.frozen:
                    writer.write(data)
                    await writer.drain()
        except OSError:
            pass
