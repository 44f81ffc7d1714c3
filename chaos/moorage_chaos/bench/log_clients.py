"""The bench's own reader of an event log: a WebSocket that looks at frames and does nothing else."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlencode

import orjson
from picows import WSError, WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

from moorage_chaos.bench.client import CONNECT_S, BenchError


class LogReader(WSListener):  # type: ignore[misc]  # picows is a compiled module without base types
    """One reader; build with :func:`follow`."""

    def __init__(self) -> None:
        self.events = 0
        self.took: list[int] = []
        """[ns] From the report to here, of live events that carry ``t``."""
        self.measuring = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        """``replay_done`` (True) or ``replay_gap``."""
        self.lost = False
        self._transport: WSTransport = None

    def on_ws_connected(self, transport: WSTransport) -> None:
        self._transport = transport

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            transport.disconnect()
        if frame.msg_type != WSMsgType.TEXT:
            return
        now = time.monotonic_ns()
        told = orjson.loads(frame.get_payload_as_bytes())
        kind = told["type"]
        if kind == "event":
            if told["event"]["type"] == "item":
                self.events += 1
                if self.measuring:
                    self.took.append(now - told["event"]["data"]["t"])
        elif kind == "ws_ready" and not self.ready.done():
            self.ready.set_result(None)
        elif kind in ("replay_done", "replay_gap") and not self.settled.done():
            self.settled.set_result(kind == "replay_done")
        elif kind == "ping":
            transport.send(WSMsgType.TEXT, b'{"type":"pong"}')

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.lost = True
        for future in (self.ready, self.settled):
            if not future.done():
                future.set_exception(BenchError("a reader's connection was closed"))
                future.exception()  # whoever still waits has it too

    def close(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.disconnect(False)


async def follow(port: int, token: str, session: str, after: str | None = None) -> LogReader:
    """A reader that is registered (``ws_ready``); ``after``: replay what follows that id.

    Raises :class:`BenchError` when it is not within ``CONNECT_S``."""
    reader = LogReader()
    query = f"?{urlencode({'last_event_id': after})}" if after is not None else ""
    url = f"ws://127.0.0.1:{port}/v1/sessions/{session}/stream{query}"
    try:
        async with asyncio.timeout(CONNECT_S):
            # A thousand at once: the last of them waits longer than the five seconds that are usual.
            headers = {"Authorization": f"Bearer {token}"}
            await ws_connect(
                lambda: reader, url, extra_headers=headers, websocket_handshake_timeout=CONNECT_S
            )
            await reader.ready
    except TimeoutError:
        raise BenchError(f"no reader at port {port} within {CONNECT_S:g} s") from None
    except WSError as error:
        raise BenchError(f"no reader at port {port}: {error}") from None
    return reader
