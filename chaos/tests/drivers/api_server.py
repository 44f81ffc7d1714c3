"""A stand-in for the API server: canned answers, watches that the test feeds, `exec`, `portforward`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import WSMsgType, web


class ApiServer:
    """``answers``: path -> body, or (status, body). Everything that is asked is in ``asked``."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.watches: asyncio.Queue[list[dict[str, Any]]] = asyncio.Queue()
        """Each entry is one watch: its events, then it ends."""
        self.port = 0
        self.children: list[asyncio.Task[int]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ApiServer]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()
            await asyncio.gather(*self.children)

    def kubeconfig(self, folder: Path) -> str:
        """Path of one that leads here."""
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [cluster],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return str(path)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        self.asked.append((request.method, request.path, json.loads(body) if body else None))
        if request.path.endswith("/exec"):
            return await self._exec(request)
        if request.path.endswith("/portforward"):
            return await self._forward(request)
        if "watch" in request.query:
            return await self._watch(request)
        found = self.answers.get(f"{request.method} {request.path}", self.answers.get(request.path))
        if found is None:
            return web.json_response({"message": f"{request.path} not found"}, status=404)
        if isinstance(found, str):
            return web.Response(text=found)
        status, answer = found if isinstance(found, tuple) else (200, found)
        return web.json_response(answer, status=status)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in await self.watches.get():
            await response.write(json.dumps(event).encode() + b"\n")
        return response

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        """The command, run here; the WebSocket's end is the end of its stdin."""
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        command = [sys.executable, *request.query.getall("command")[1:]]
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdin is not None
        assert child.stdout is not None
        stdout = child.stdout

        async def out() -> None:
            while data := await stdout.read(4096):
                await socket.send_bytes(b"\x01" + data)

        task = asyncio.create_task(out())
        try:
            async for message in socket:
                if message.type == WSMsgType.BINARY and message.data[0] == 0:
                    child.stdin.write(message.data[1:])
        finally:
            child.stdin.close()
            ended = asyncio.create_task(child.wait())
            self.children.append(ended)
            await asyncio.shield(ended)
            task.cancel()
        return socket

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        port = int(request.query["ports"])
        for channel in (0, 1):
            await socket.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        async for message in socket:
            if message.type == WSMsgType.BINARY and message.data[0] == 0:
                await socket.send_bytes(b"\x00" + message.data[1:].upper())
        return socket
