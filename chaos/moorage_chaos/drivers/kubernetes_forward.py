"""A port of 127.0.0.1 that leads to a port of a pod through the API server, a WebSocket per connection.

Protocol ``v4.channel.k8s.io`` of the ``portforward`` subresource: channel 0 is data, 1 is errors; the first message
of each channel is the port number, two bytes.
"""

from __future__ import annotations

import asyncio

import aiohttp

from moorage_chaos.drivers.base import DriverError
from moorage_chaos.drivers.kubernetes_api import Api

DATA, ERROR = 0, 1
CHUNK = 1 << 16
CLOSE_BOUND_S = 2.0
"""Of the ends of all connections once they are aborted."""


class Forward:
    """Connections made after :attr:`pod` changes go to the new pod; those that stand hang on the old one."""

    def __init__(self, api: Api, namespace: str, target: int) -> None:
        self.pod = ""
        self.port = 0
        self._api, self._namespace, self._target = api, namespace, target
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        # Not cancelled: asyncio reports a handler of a stream server that was.
        for writer in self._writers:
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_BOUND_S)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        path = f"/api/v1/namespaces/{self._namespace}/pods/{self.pod}/portforward"
        try:
            socket = await self._api.connect_socket(path, [("ports", str(self._target))])
        except DriverError:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)
            return
        try:
            await self._splice(reader, writer, socket)
        finally:
            writer.transport.abort()
            await socket.close()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _splice(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        socket: aiohttp.ClientWebSocketResponse,
    ) -> None:
        """Copy both ways until either side ends."""

        async def up() -> None:
            while data := await reader.read(CHUNK):
                await socket.send_bytes(bytes([DATA]) + data)

        async def down() -> None:
            begun: set[int] = set()
            async for message in socket:
                if message.type != aiohttp.WSMsgType.BINARY or not message.data:
                    return
                channel, data = message.data[0], message.data[1:]
                if channel not in begun:
                    begun.add(channel)
                    data = data[2:]
                if channel == ERROR and data:
                    return
                if data:
                    writer.write(data)
                    await writer.drain()

        ways = {asyncio.create_task(up()), asyncio.create_task(down())}
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
