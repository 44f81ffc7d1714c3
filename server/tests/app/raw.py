"""A Socket.IO client as bytes on a WebSocket, with the memory of socket.io-client: private id and offset."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp

BOUND_S = 10.0


class Raw:
    """``async with Raw(url, token=…) as client``; :meth:`cut` and :meth:`connect` again to come back."""

    def __init__(
        self, url: str, *, python: bool = False, namespace: str = "/", path: str = "/v1/updates/", **auth: Any
    ) -> None:
        query = "transport=websocket&EIO=4" if python else "EIO=4&transport=websocket"
        self.end = f"{path}?{query}"
        self.url = url.replace("http", "ws", 1) + self.end
        self.auth = auth
        self.namespace = namespace
        self.pid: str | None = None
        self.offset: str | None = None
        self.sid = ""
        self.recovered = False
        self.refusal: str | None = None
        self.events: list[list[Any]] = []
        """Without offsets."""
        self.raw: list[list[Any]] = []
        self.asked: list[int] = []
        """Ids of the acks that are wanted."""
        self._http: aiohttp.ClientSession | None = None
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Raw:
        await self.connect()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.cut()

    async def connect(self, url: str | None = None, **auth: Any) -> Raw:
        """Also to another replica; ``auth`` is added to what CONNECT carries."""
        if url is not None:
            self.url = url.replace("http", "ws", 1) + self.end
        self._http = aiohttp.ClientSession()
        self.ws = await self._http.ws_connect(self.url, max_msg_size=0)
        await self.ws.receive()  # the Engine.IO handshake
        names: dict[str, Any] = {}
        if self.pid is not None:
            names["pid"] = self.pid
            if self.offset is not None:
                names["offset"] = self.offset
        head = "40" if self.namespace == "/" else f"40{self.namespace},"
        await self.ws.send_str(head + json.dumps(names | self.auth | auth))
        answered = asyncio.get_running_loop().create_future()
        self._reader = asyncio.create_task(self._read(answered))
        async with asyncio.timeout(BOUND_S):
            await answered
        return self

    async def _read(self, answered: asyncio.Future[None]) -> None:
        async for message in self.ws:
            if message.type != aiohttp.WSMsgType.TEXT:
                continue
            text = message.data
            if text == "2":
                await self.ws.send_str("3")
                continue
            kind, body = text[1], text[2:]
            if self.namespace != "/":
                body = body.removeprefix(self.namespace).removeprefix(",")
            if kind == "0":
                data = json.loads(body)
                self.recovered = self.pid is not None and data.get("pid") == self.pid
                self.sid, self.pid = data["sid"], data.get("pid")
                answered.set_result(None)
            elif kind == "4":
                self.refusal = json.loads(body)["message"]
                answered.set_result(None)
            elif kind in ("2", "5"):
                body = body if kind == "2" else body.partition("-")[2]
                data = json.loads(body.lstrip("0123456789"))
                if body[0].isdigit():
                    self.asked.append(int(body[: body.index("[")]))
                self.raw.append(list(data))
                if self.pid is not None and not body[0].isdigit() and isinstance(data[-1], str):
                    self.offset = data.pop()
                self.events.append(data)
            elif kind == "3":
                self.events.append(["ack", *json.loads(body.lstrip("0123456789"))])
        if not answered.done():
            answered.set_exception(ConnectionError("closed before CONNECT was answered"))

    @property
    def is_open(self) -> bool:
        """Connected, as far as it knows."""
        return self._reader is not None and not self._reader.done()

    async def send(self, event: str, *args: Any, ack: int | None = None) -> None:
        head = "42" if self.namespace == "/" else f"42{self.namespace},"
        await self.ws.send_str(f"{head}{'' if ack is None else ack}{json.dumps([event, *args])}")

    async def cut(self) -> None:
        """The connection breaks without a word."""
        http, self._http = self._http, None
        if http is None or self._reader is None:
            return
        response = self.ws._response
        if response.connection is not None and response.connection.transport is not None:
            response.connection.transport.abort()
        self._reader.cancel()
        await asyncio.wait([self._reader])
        response.close()
        await http.close()

    def of(self, event: str) -> list[Any]:
        """First arguments of all events of that name."""
        return [item[1] for item in self.events if item[0] == event]
