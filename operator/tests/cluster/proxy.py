"""A proxy in front of the real API server that answers wrongly on demand, and counts what it is asked."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

HOP = {"connection", "transfer-encoding", "content-length", "host", "content-encoding", "keep-alive"}


class Proxy:
    """Plain HTTP here, the kubeconfig's TLS there. Faults are flags that tests set."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        self._cluster, self._user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        self.refuse_writes: int | None = None
        """Status of the answer to every write, instead of the write."""
        self.refuse_reads: int | None = None
        self.delay_seconds = 0.0
        self.port = 0
        self.requests: list[tuple[float, str, str]] = []
        """(when [s, monotonic], method, path with query)"""
        self._watches: set[tuple[web.StreamResponse, asyncio.Task[Any]]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        ready, stop = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._main(ready, stop)), daemon=True)
        thread.start()
        assert ready.wait(10)
        try:
            yield self
        finally:
            stop.set()
            thread.join(15)

    def kubeconfig(self, path: Path) -> Path:
        """One that leads here."""
        cluster = {"name": "proxy", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        context = {"name": "proxy", "context": {"cluster": "proxy", "user": "nobody"}}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "clusters": [cluster],
            "contexts": [context],
            "users": [{"name": "nobody", "user": {"token": "none"}}],
        }
        path.write_text(json.dumps(document))
        return path

    def end_watches(self, *, gone: bool) -> int:
        """Drop every watch; ``gone``: first say 410, so that the watcher must list anew. Returns how many."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._end(gone), self._loop).result(10)

    def asked_since(self, moment: float, method: str = "") -> int:
        return sum(when >= moment and method in ("", verb) for when, verb, _ in self.requests)

    # -- inside the thread -----------------------------------------------------------------------------

    async def _main(self, ready: threading.Event, stop: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(ssl=self._tls(), limit=0)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(
            connector=connector, timeout=timeout, auto_decompress=False
        ) as session:
            app = web.Application(client_max_size=2**24)

            async def handle(request: web.Request) -> web.StreamResponse:
                return await self._handle(session, request)

            app.router.add_route("*", "/{path:.*}", handle)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            ready.set()
            while not stop.is_set():
                await asyncio.sleep(0.05)
            await self._end(False)
            await runner.cleanup()
        # A TLS connection is closed only some turns of the loop after its session says so.
        await asyncio.sleep(1)

    def _tls(self) -> ssl.SSLContext:
        authority = base64.b64decode(self._cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        with tempfile.TemporaryDirectory() as folder:
            for name in ("client-certificate-data", "client-key-data"):
                (Path(folder) / name).write_bytes(base64.b64decode(self._user[name]))
            context.load_cert_chain(
                Path(folder) / "client-certificate-data", Path(folder) / "client-key-data"
            )
        return context

    async def _handle(self, session: aiohttp.ClientSession, request: web.Request) -> web.StreamResponse:
        self.requests.append((time.monotonic(), request.method, request.path_qs))
        await asyncio.sleep(self.delay_seconds)
        watch = request.query.get("watch") == "true"
        refused = self.refuse_reads if request.method == "GET" and not watch else self.refuse_writes
        if refused is not None and not watch and (request.method != "GET" or self.refuse_reads is not None):
            return self._refusal(refused)
        url = self._cluster["server"] + request.path_qs
        headers = {k: v for k, v in request.headers.items() if k.lower() not in (*HOP, "authorization")}
        body = await request.read()
        async with session.request(request.method, url, data=body or None, headers=headers) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP - {"content-encoding"}}
            if not watch:
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            task = asyncio.current_task()
            assert task is not None
            entry = (response, task)
            self._watches.add(entry)
            try:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            except (asyncio.CancelledError, ConnectionError, aiohttp.ClientError):
                pass
            finally:
                self._watches.discard(entry)
            return response

    def _refusal(self, status: int) -> web.Response:
        reasons = {409: "Conflict", 429: "TooManyRequests", 503: "ServiceUnavailable", 410: "Expired"}
        document = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": status,
            "reason": reasons[status],
            "message": f"injected {status}",
        }
        headers = {"Retry-After": "1"} if status == 429 else {}
        return web.json_response(document, status=status, headers=headers)

    async def _end(self, gone: bool) -> int:
        watches = list(self._watches)
        expired = {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": 410,
            "reason": "Expired",
        }
        for response, task in watches:
            if gone:
                line = json.dumps({"type": "ERROR", "object": expired}) + "\n"
                try:
                    await response.write(line.encode())
                except ConnectionError:
                    pass
            task.cancel()
        return len(watches)
