"""A server with one session's event log, on real sockets, that follows the script of a test.

Its log is true to the protocol; what a test may make it do wrong, or slowly, is named below.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiohttp import WSMsgType, web

from .replicas import BOUND_S

SESSION = "s1"
Frame = dict[str, Any]


def event_frame(id_: str | None, seq: int | None, type_: str = "step", **event: Any) -> Frame:
    return {"type": "event", "id": id_, "seq": seq, "event": {"type": type_, "data": None, "at": 1, **event}}


class LogServer:
    """``connections``: the queries of all connections so far. ``heard``: frames of clients."""

    def __init__(self) -> None:
        self.log: list[Frame] = []
        self.seq = 0
        self.epoch = "e1"
        self.clock = 980  # three digits, soon four: as text, ids would be in another order
        self.trimmed_to = 0  # seq of the last event that is gone
        self.turn_begins = 0  # seq of its session_created; 0: no turn
        self.token = "good"
        self.connections: list[dict[str, str]] = []
        self.heard: list[Frame] = []
        self.tasks: list[Frame] = []
        self.replies: list[Frame] = []
        self.sockets: set[web.WebSocketResponse] = set()
        # -- the script
        self.refuse: list[int] = []  # statuses of the next upgrades
        self.close_at_once: list[int] = []  # codes of the next connections, before ws_ready
        self.mute = False  # events are logged, and not pushed
        self.replay_gate: asyncio.Event | None = None  # waited for between ws_ready and the replay
        self.turn_gate: asyncio.Event | None = None
        self.turn_fails = 0
        self.turn_refused = False  # the session is no more, and its stream goes on
        self.turn_length = 1000  # events of one answer
        self.skip_replay = False
        self.before_done: Callable[[web.WebSocketResponse], Any] | None = None

    # -- what happens in the log -----------------------------------------------------------------------------

    @property
    def kept(self) -> list[Frame]:
        return [frame for frame in self.log if frame["seq"] > self.trimmed_to]

    @property
    def ids(self) -> list[str]:
        return [frame["id"] for frame in self.log]

    def append(self, type_: str = "step", **event: Any) -> Frame:
        """Log an event and push it to every connection."""
        self.seq += 1
        self.clock += 7
        frame = event_frame(f"{self.clock}-{self.seq % 3}", self.seq, type_, **event)
        self.log.append(frame)
        if type_ == "session_created":
            self.turn_begins = self.seq
        if not self.mute:
            self.push(frame)
        return frame

    def push(self, frame: Frame) -> None:
        for ws in list(self.sockets):
            ws._writer.transport.write(_text(frame)) if ws._writer and ws._writer.transport else None

    def wipe(self, epoch: str) -> None:
        """The log is gone; a new one begins."""
        self.log, self.seq, self.trimmed_to, self.turn_begins, self.epoch = [], 0, 0, 0, epoch

    # -- what happens to connections ---------------------------------------------------------------------------

    async def close(self, code: int) -> None:
        for ws in list(self.sockets):
            await ws.close(code=code)

    def cut(self, *, politely: bool = False) -> None:
        """TCP ends, by RST or (politely) by FIN; in both cases without a close frame."""
        for ws in list(self.sockets):
            if ws._writer is not None and ws._writer.transport is not None:
                transport = ws._writer.transport
                transport.close() if politely else transport.abort()

    # -- HTTP ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[LogServer]:
        app = web.Application()
        base = "/v1/sessions/{id}"
        app.router.add_get(base + "/stream", self._stream)
        app.router.add_get(base + "/turn", self._turn)
        app.router.add_get(base + "/events", self._events)
        app.router.add_post(base + "/tasks", self._start)
        app.router.add_post(base + "/replies", self._reply)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        try:
            yield self
        finally:
            self.cut()
            await self._runner.cleanup()

    def _refusal(self, request: web.Request) -> web.Response | None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        offered = request.headers.get("Sec-WebSocket-Protocol", "")
        if token != self.token and f"bearer.{self.token}" not in offered:
            return web.json_response({"error": "Invalid token", "statusCode": 401}, status=401)
        if request.match_info["id"] != SESSION:
            return web.json_response({"error": "Session not found", "statusCode": 404}, status=404)
        return None

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        if self.refuse:
            return web.json_response({"error": "no"}, status=self.refuse.pop(0))
        if (refusal := self._refusal(request)) is not None:
            return refusal
        self.connections.append(dict(request.query))
        ws = web.WebSocketResponse(protocols=("moorage.v1",), timeout=0.5)
        await ws.prepare(request)
        if self.close_at_once:
            await ws.close(code=self.close_at_once.pop(0))
            return ws
        head = self.log[-1] if self.log else {"id": "0-0", "seq": 0}
        self.sockets.add(ws)
        try:
            await self._greet(ws, request.query, head)
            async for message in ws:
                if message.type is WSMsgType.TEXT:
                    self.heard.append(json.loads(message.data))
        except ConnectionError:
            pass
        finally:
            self.sockets.discard(ws)
        return ws

    async def _greet(self, ws: web.WebSocketResponse, query: Any, head: Frame) -> None:
        place = {"lastEventId": head["id"], "lastSeq": head["seq"], "epoch": self.epoch}
        await ws.send_json({"type": "ws_ready", "sessionId": SESSION, **place})
        after = query.get("last_event_id")
        if after is None:
            return
        if self.replay_gate is not None:
            await self.replay_gate.wait()
        if (gap := self._gap(after, query)) is not None:
            return await ws.send_json(gap)
        missing = [frame for frame in self.kept if _number(frame["id"]) > _number(after)]
        for frame in [] if self.skip_replay else missing:
            await ws.send_json(frame)
        if self.before_done is not None:
            await self.before_done(ws)
        last = missing[-1]["id"] if missing else after
        await ws.send_json({"type": "replay_done", "lastEventId": last})

    def _gap(self, after: str, query: Any) -> Frame | None:
        oldest = self.kept[0]["id"] if self.kept else None
        if query.get("epoch", self.epoch) != self.epoch:
            return {"type": "replay_gap", "reason": "epoch", "oldest": oldest}
        seq = int(query.get("last_seq", 0))
        if seq < self.trimmed_to:
            gap: Frame = {"type": "replay_gap", "reason": "trimmed", "oldest": oldest}
            return gap | ({"missed": self.trimmed_to - seq} if "last_seq" in query else {})
        return None

    async def _turn(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        if self.turn_gate is not None:
            await self.turn_gate.wait()
        if self.turn_refused:
            return web.json_response({"error": "Session not found", "statusCode": 404}, status=404)
        if self.turn_fails:
            self.turn_fails -= 1
            return web.json_response({"error": "Backplane unavailable", "statusCode": 503}, status=503)
        if not self.turn_begins:
            return web.json_response({"error": "Turn not found", "statusCode": 404}, status=404)
        events = [frame for frame in self.kept if frame["seq"] >= self.turn_begins]
        events = events[: self.turn_length]
        last = events[-1] if events else {"id": "0-0", "seq": 0}
        turn = {"taskId": "t1", "status": "running", "input": {}, "events": events, "epoch": self.epoch}
        turn |= {"lastEventId": last["id"], "lastSeq": last["seq"]}
        return web.json_response(turn | ({"truncated": True} if self.trimmed_to >= self.turn_begins else {}))

    async def _events(self, request: web.Request) -> web.Response:
        return self._refusal(request) or web.json_response({"events": [], "next": None})

    async def _start(self, request: web.Request) -> web.Response:
        if (refusal := self._refusal(request)) is not None:
            return refusal
        body = await request.json()
        if body.get("handler") == "nosuch":
            why = "No worker has a handler named nosuch"
            return web.json_response({"error": "Unknown handler", "message": why}, status=422)
        self.tasks.append(body)
        self.append("session_created", data={"taskId": "t1", "input": self.tasks[-1]["input"]})
        return web.json_response({"taskId": "t1"}, status=202)

    async def _reply(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["questionId"] != "q1":
            return web.json_response({"error": "Question not found", "statusCode": 404}, status=404)
        self.replies.append(body)
        return web.Response(status=202)


def _number(id_: str) -> tuple[int, int]:
    ms, n = id_.split("-")
    return int(ms), int(n)


def _text(frame: Frame) -> bytes:
    """A WebSocket text frame: pushes must not wait behind a slow replay of the same connection."""
    payload = json.dumps(frame).encode()
    assert len(payload) < 126 or len(payload) < 65536
    if len(payload) < 126:
        return bytes([0x81, len(payload)]) + payload
    return bytes([0x81, 126]) + len(payload).to_bytes(2, "big") + payload


__all__ = ["BOUND_S", "SESSION", "LogServer", "event_frame"]
