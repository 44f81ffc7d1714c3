"""Unmodified clients behind one interface: python-socketio in this process, socket.io-client in a Node process."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pytest
import socketio

NODE_PACKAGES = Path(__file__).parents[3] / "chaos" / "peers" / "node"
BOUND_S = 10.0


def require_node() -> None:
    """Skip without Node or its packages; under CI=true that is a failure."""
    if shutil.which("node") is None:
        reason = "Node.js is not installed"
    elif not (NODE_PACKAGES / "node_modules" / "socket.io-client").is_dir():
        reason = "the Node packages are missing: make node"
    else:
        return
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


class Refused(Exception):
    """connect_error, with its message."""


class Peer(ABC):
    """A plain client. `events`: all that came, in order, as (event, args)."""

    def __init__(self) -> None:
        self.sid = ""
        self.events: list[tuple[str, list[Any]]] = []
        self._came = asyncio.Event()
        self._read = 0

    @abstractmethod
    async def connect(
        self, url: str, auth: dict[str, Any], transports: tuple[str, ...] = ("websocket",)
    ) -> None:
        """Raises Refused."""

    @abstractmethod
    async def emit(self, event: str, *args: Any) -> None: ...

    @abstractmethod
    async def ask(self, event: str, *args: Any) -> Any:
        """The ack."""

    @abstractmethod
    async def serve(self, method: str, *, hang: bool = False) -> None:
        """Register, wait for it, answer requests with {"served": params}."""

    @abstractmethod
    async def cut(self) -> None:
        """The transport breaks, without a goodbye."""

    @abstractmethod
    async def close(self) -> None: ...

    async def event(self, name: str, **fields: Any) -> Any:
        """The payload of the next event of that name in which the fields have these values."""

        def matches(event: tuple[str, list[Any]]) -> bool:
            payload = event[1][0] if event[1] else {}
            return event[0] == name and all(payload.get(key) == value for key, value in fields.items())

        async with asyncio.timeout(BOUND_S):
            while True:
                for position in range(self._read, len(self.events)):
                    if matches(self.events[position]):
                        self._read = position + 1
                        return self.events[position][1][0] if self.events[position][1] else None
                self._came.clear()
                await self._came.wait()

    def _add(self, event: str, args: list[Any]) -> None:
        self.events.append((event, args))
        self._came.set()


class PythonPeer(Peer):
    """python-socketio's AsyncClient, as it comes."""

    def __init__(self) -> None:
        super().__init__()
        self._sio = socketio.AsyncClient(reconnection=False)
        self._sio.on("*", self._on_any)
        self._sio.on("rpc-request", self._on_request)
        self._sio.on("connect_error", self._on_refused)
        self._hang: dict[str, bool] = {}
        self._refusal: Any = None

    def _on_any(self, event: str, *args: Any) -> None:
        self._add(event, list(args))

    def _on_refused(self, data: Any) -> None:
        self._refusal = data

    async def _on_request(self, message: dict[str, Any]) -> Any:
        self._add("rpc-request", [message])
        if self._hang[message["method"]]:
            await asyncio.get_running_loop().create_future()
        return {"served": message["params"]}

    async def connect(
        self, url: str, auth: dict[str, Any], transports: tuple[str, ...] = ("websocket",)
    ) -> None:
        try:
            await self._sio.connect(
                url, auth=auth, transports=list(transports), socketio_path="/v1/updates", wait_timeout=BOUND_S
            )
        except socketio.exceptions.ConnectionError as error:
            raise Refused(self._refusal["message"] if isinstance(self._refusal, dict) else error) from error
        self.sid = self._sio.get_sid()

    async def emit(self, event: str, *args: Any) -> None:
        await self._sio.emit(event, args if len(args) != 1 else args[0])

    async def ask(self, event: str, *args: Any) -> Any:
        return await self._sio.call(event, args if len(args) != 1 else args[0], timeout=BOUND_S)

    async def serve(self, method: str, *, hang: bool = False) -> None:
        self._hang[method] = hang
        await self.emit("rpc-register", {"method": method})
        await self.event("rpc-registered", method=method)

    async def cut(self) -> None:
        self._sio.eio.ws._response.connection.transport.abort()
        await self._sio.eio.wait()

    async def close(self) -> None:
        if self._sio.connected:
            await self._sio.disconnect()
        await self._sio.eio._reset()


class NodePeer(Peer):
    """socket.io-client in a Node process of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None

    async def connect(
        self, url: str, auth: dict[str, Any], transports: tuple[str, ...] = ("websocket",)
    ) -> None:
        script = Path(__file__).with_name("peer.mjs")
        self._process = await asyncio.create_subprocess_exec(
            "node",
            str(script),
            str(NODE_PACKAGES / "package.json"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self._reader = asyncio.create_task(self._read_lines(self._process))
        options = {
            "path": "/v1/updates",
            "transports": transports,
            "auth": auth,
            "reconnectionDelay": 50,
            "reconnectionDelayMax": 200,
        }
        answer = await self._do("connect", url=url, options=options)
        if not answer["ok"]:
            raise Refused(answer["error"])
        self.sid = answer["value"]["sid"]

    async def _read_lines(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            message = json.loads(line)
            if "event" in message:
                self._add(message["event"], message["args"])
            else:
                self._answers.pop(message["n"]).set_result(message)

    async def _do(self, action: str, **fields: Any) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        number = next(self._numbers)
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(json.dumps({"n": number, "do": action, **fields}).encode() + b"\n")
        async with asyncio.timeout(BOUND_S):
            await self._process.stdin.drain()
            return await future

    async def emit(self, event: str, *args: Any) -> None:
        await self._do("emit", args=[event, *args])

    async def ask(self, event: str, *args: Any) -> Any:
        answer = await self._do("ask", args=[event, *args], limit=int(BOUND_S * 900))
        assert answer["ok"], answer
        return answer["value"]

    async def serve(self, method: str, *, hang: bool = False) -> None:
        await self._do("serve", method=method, hang=hang)
        await self.emit("rpc-register", {"method": method})
        await self.event("rpc-registered", method=method)

    async def cut(self) -> None:
        await self._do("cut")

    async def close(self) -> None:
        if self._process is None:
            return
        if self._process.returncode is None:
            await self._do("disconnect")
            assert self._process.stdin is not None
            self._process.stdin.close()
        async with asyncio.timeout(BOUND_S):
            await self._process.wait()
            if self._reader is not None:
                await self._reader
