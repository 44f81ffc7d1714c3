"""The three ways to read, on whole replicas: who may, what comes, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import websockets
from websockets.exceptions import ConnectionClosed

from ..app.running import Client, Running
from ..app.running import running as replica
from ..valkey import Valkey

Until = Callable[..., Awaitable[None]]


@pytest.fixture(params=["memory", "redis"])
async def at(request: pytest.FixtureRequest) -> AsyncIterator[Running]:
    url = None if request.param == "memory" else request.getfixturevalue("valkey").url
    async with replica(url, drain_ms=300) as running:
        yield running


def http(at: Running, account: str = "acc") -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=at.url, headers={"Authorization": f"Bearer {at.token(account)}"}, timeout=10
    )


async def new_session(at: Running, account: str = "acc", tag: str = "t") -> str:
    async with http(at, account) as client:
        made = await client.post("/v1/sessions", json={"tag": tag, "metadata": None})
        return str(made.json()["session"]["id"])


async def append(at: Running, session_id: str, data: Any, **more: Any) -> dict[str, Any]:
    async with http(at) as client:
        answer = await client.post(
            f"/v1/sessions/{session_id}/events", json={"type": "t", "data": data, **more}
        )
        assert answer.status_code == 200
        return dict(answer.json())


@asynccontextmanager
async def stream(at: Running, session_id: str, query: str = "", **options: Any) -> AsyncIterator[Any]:
    headers = options.pop("headers", {"Authorization": f"Bearer {at.token()}"})
    url = f"ws://127.0.0.1:{at.port}/v1/sessions/{session_id}/stream{query}"
    async with websockets.connect(url, additional_headers=headers, ping_interval=None, **options) as ws:
        yield ws


async def frame(ws: Any) -> dict[str, Any]:
    async with asyncio.timeout(10):
        return dict(json.loads(await ws.recv()))


async def closed(ws: Any) -> int:
    async with asyncio.timeout(10):
        try:
            while True:
                await ws.recv()
        except ConnectionClosed as error:
            return error.rcvd.code if error.rcvd else 1006


class Sse:
    """An event stream being read."""

    def __init__(self, response: httpx.Response) -> None:
        self.lines = response.aiter_lines()

    async def next(self) -> tuple[str | None, dict[str, Any]]:
        id, data = None, None
        async with asyncio.timeout(10):
            async for line in self.lines:
                if line.startswith("id: "):
                    id = line[4:]
                elif line.startswith("data: "):
                    data = json.loads(line[6:])
                elif not line and data is not None:
                    return id, data
        raise EOFError


@asynccontextmanager
async def sse(at: Running, session_id: str, query: str = "", **headers: str) -> AsyncIterator[Sse]:
    async with (
        http(at) as client,
        client.stream(
            "GET",
            f"/v1/sessions/{session_id}/events{query}",
            headers={"Accept": "text/event-stream", **headers},
        ) as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        assert "content-length" not in response.headers
        yield Sse(response)


# -- HTTP --------------------------------------------------------------------------------------------------
async def test_append_and_page(at: Running) -> None:
    session_id = await new_session(at)
    one = await append(at, session_id, {"n": 1}, key="k")
    assert one["seq"] == 1
    assert await append(at, session_id, 2, transient=True) == {"id": None, "seq": None}
    for n in range(2, 5):
        await append(at, session_id, n)
    async with http(at) as client:
        path = f"/v1/sessions/{session_id}/events"
        page = (await client.get(path, params={"limit": 3})).json()
        assert [event["seq"] for event in page["events"]] == [1, 2, 3]
        assert page["events"][0]["event"]["key"] == "k"
        rest = (await client.get(path, params={"after": page["next"]})).json()
        assert ([event["seq"] for event in rest["events"]], rest["next"]) == ([4], None)
        gap = (await client.get(path, params={"after": ""})).json()
        assert (gap["events"], gap["next"], gap["gap"]["reason"]) == ([], None, "invalid")


REFUSED: list[tuple[Any, int]] = [
    ({"type": "session_created", "data": 1}, 422), ({"type": "task_result", "data": 1}, 422),
    ({"type": "question", "data": 1}, 422), ({"type": "unlogged", "data": 1}, 422), ({"type": "", "data": 1}, 422),
    ({"type": "t"}, 422), ({"type": 5, "data": 1}, 422), ({"type": "t", "data": 1, "key": 5}, 422),
    ({"type": "x" * 257, "data": 1}, 422), ({"type": "t", "data": "x" * 65_535}, 413),
    ({"type": "t", "data": 2**80}, 422), ([], 422),
    ({"type": "\ud800", "data": 1}, 422),
]  # fmt: skip


async def test_what_is_refused() -> None:
    async with replica(None) as at:
        session_id = await new_session(at)
        async with http(at) as client:
            for body, status in REFUSED:
                sent = {"content": json.dumps(body), "headers": {"Content-Type": "application/json"}}
                answer = await client.post(f"/v1/sessions/{session_id}/events", **sent)  # type: ignore[arg-type]
                assert (answer.status_code, answer.json()["statusCode"]) == (status, status)
            assert (await client.get(f"/v1/sessions/{session_id}/events")).json()["events"] == []


async def test_another_accounts_log_is_unknown(at: Running) -> None:
    session_id = await new_session(at)
    async with http(at, "other") as client:
        path = f"/v1/sessions/{session_id}/events"
        for answer in (
            await client.get(path),
            await client.get(path, headers={"Accept": "text/event-stream"}),
            await client.post(path, json={"type": "t", "data": 1}),
            await client.get("/v1/sessions/nobody/events"),
        ):
            assert (answer.status_code, answer.json()["error"]) == (404, "Session not found")


# -- WebSocket ---------------------------------------------------------------------------------------------
async def test_websocket_replays_then_lives(at: Running) -> None:
    session_id = await new_session(at)
    ids = [(await append(at, session_id, n))["id"] for n in range(3)]
    async with stream(at, session_id) as ws:
        ready = await frame(ws)
        assert (ready["type"], ready["lastEventId"], ready["lastSeq"]) == ("ws_ready", ids[2], 3)
        assert ws.subprotocol is None
        await append(at, session_id, "live")
        assert (await frame(ws))["event"]["data"] == "live"
    query = f"?last_event_id={ids[0]}&last_seq=1&epoch={ready['epoch']}"
    async with stream(at, session_id, query) as ws:
        frames = [await frame(ws) for _ in range(5)]
        assert [f["type"] for f in frames] == ["ws_ready", "event", "event", "event", "replay_done"]
        assert [f["event"]["data"] for f in frames[1:4]] == [1, 2, "live"]
    async with stream(at, session_id, "?last_event_id=") as ws:
        await frame(ws)
        assert (await frame(ws))["reason"] == "invalid"
    async with stream(at, session_id, f"?last_event_id={ids[0]}&last_seq=1&epoch=zzz") as ws:
        await frame(ws)
        assert (await frame(ws))["reason"] == "epoch"


async def test_browsers_bring_their_token_as_a_subprotocol(at: Running) -> None:
    session_id = await new_session(at)
    offered = ["moorage.v1", f"bearer.{at.token()}"]
    async with stream(at, session_id, headers={}, subprotocols=offered) as ws:
        assert ws.subprotocol == "moorage.v1"
        assert (await frame(ws))["type"] == "ws_ready"


UNWELCOME: list[tuple[str, Any, Any, int]] = [
    ("", {}, None, 401), ("?token={token}", {}, None, 401), ("?access_token={token}", "good", None, 401),
    ("", {"Authorization": "Bearer junk"}, None, 401), ("", {"Authorization": "Basic abc"}, None, 401),
    ("", {}, ["moorage.v1", "bearer.junk"], 401), ("", {}, ["bearer.{token}", "moorage.v1"], 401),
    ("", "other", None, 404),
]  # fmt: skip


async def test_refused_before_the_upgrade() -> None:
    async with replica(None) as at:
        session_id = await new_session(at)
        token = at.token()
        for query, headers, protocols, status in UNWELCOME:
            if headers in ("good", "other"):
                headers = {"Authorization": f"Bearer {at.token('acc' if headers == 'good' else 'other')}"}
            offered = [name.format(token=token) for name in protocols] if protocols else None
            with pytest.raises(websockets.InvalidStatus) as refused:
                async with stream(
                    at, session_id, query.format(token=token), headers=headers, subprotocols=offered
                ):
                    pass
            response = refused.value.response
            assert response.status_code == status
            assert json.loads(response.body or b"")["statusCode"] == status
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with stream(at, "nobody"):
                pass
        assert refused.value.response.status_code == 404


async def test_while_redis_is_away_a_reader_is_refused_for_now(valkey: Valkey, until: Until) -> None:
    async with replica(valkey.url) as at:
        session_id = await new_session(at)
        valkey.kill()
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with stream(at, session_id):
                pass
        assert refused.value.response.status_code == 503
        assert refused.value.response.headers["Retry-After"] == "1"


async def test_junk_on_a_stream_ends_at_most_that_stream(at: Running, until: Until) -> None:
    session_id = await new_session(at)
    async with stream(at, session_id) as good:
        await frame(good)
        for message in ("", "{", "null", '{"type":"reply","questionId":1}', "x" * 100_000):
            await good.send(message)
        async with stream(at, session_id) as bad:
            await bad.send(b"\x00binary")
            assert await closed(bad) == 1003
        async with stream(at, session_id) as bad:
            await bad.send("x" * 1_500_000)
            assert await closed(bad) in (1002, 1006, 1009)
        await append(at, session_id, "still there")
        assert (await frame(good))["event"]["data"] == "still there"
    await until(lambda: not at.replica.event_log.connections)
    assert not at.replica.event_log.live.groups


async def test_a_client_that_leaves_before_it_is_admitted(at: Running, until: Until) -> None:
    session_id = await new_session(at)
    for _ in range(20):
        _, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(
            f"GET /v1/sessions/{session_id}/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            f"Authorization: Bearer {at.token()}\r\n\r\n".encode()
        )
        await writer.drain()
        writer.close()
    async with stream(at, session_id) as ws:
        await frame(ws)
        await append(at, session_id, 1)
        assert (await frame(ws))["event"]["data"] == 1
    await until(lambda: not at.replica.event_log.connections)


async def test_replies_reach_who_takes_them(at: Running, until: Until) -> None:
    got: list[Any] = []

    async def take(*reply: Any) -> bool:
        got.append(reply)
        return True

    at.replica.reading.streams.reply = take
    session_id = await new_session(at)
    async with stream(at, session_id) as ws:
        await ws.send(json.dumps({"type": "reply", "questionId": "q", "answer": {"a": 1}}))
        await until(lambda: got)
    assert got == [("acc", session_id, "q", {"a": 1})]


def said_of_slow(at: Running, caplog: pytest.LogCaptureFixture, session_id: str, kind: str) -> bool:
    """The log names the reader that was cut off, and it is counted."""
    text = at.replica.metrics.render()[0].decode()
    lines = [record.getMessage() for record in caplog.records if "cut off" in record.getMessage()]
    assert len(lines) <= 1
    counted = f'event_readers_slow_total{{kind="{kind}"}} 1.0' in text
    return (
        counted
        and re.fullmatch(
            rf"session {session_id}: slow {kind} reader cut off, [1-9][0-9]{{4,}} bytes unsent", lines[0]
        )
        is not None
    )


async def test_a_reader_that_does_not_read_is_cut_with_a_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "moorage")
    # It has some megabytes to read before it comes to the reason.
    monkeypatch.setattr("moorage.sockets.websocket.CLOSE_WAIT_S", 20.0)
    async with replica(None, reader_max_buffer_bytes=262_144) as at:
        session_id = await new_session(at)
        async with stream(at, session_id, max_queue=1, max_size=None) as slow, stream(at, session_id) as fine:
            for ws in (slow, fine):
                await frame(ws)
            log, count = at.replica.event_log, 0
            async with asyncio.timeout(20):
                while len(log.connections) == 2:
                    await log.append(session_id, "t", "x" * 60_000)
                    count += 1
                    assert (await frame(fine))["seq"] == count
            seen, code = [], None
            async with asyncio.timeout(10):
                try:
                    while True:
                        seen.append(json.loads(await slow.recv())["seq"])
                except ConnectionClosed as error:
                    code = error.rcvd.code if error.rcvd else None
            assert seen == list(range(1, len(seen) + 1))
            assert code == 4408
            assert said_of_slow(at, caplog, session_id, "websocket")


async def test_an_event_stream_that_is_not_read_is_cut(
    until: Until, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "moorage")
    async with replica(None, reader_max_buffer_bytes=262_144) as at:
        session_id = await new_session(at)
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port, limit=1024)
        writer.write(
            f"GET /v1/sessions/{session_id}/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n"
            f"Authorization: Bearer {at.token()}\r\n\r\n".encode()
        )
        log = at.replica.event_log
        await until(lambda: log.connections)
        async with asyncio.timeout(20):
            while log.connections:
                await log.append(session_id, "t", "x" * 60_000)
                await asyncio.sleep(0)
        assert said_of_slow(at, caplog, session_id, "sse")
        await until(lambda: not at.server.server_state.tasks)  # the connection is cut, unread
        async with asyncio.timeout(10):
            with contextlib.suppress(ConnectionError):
                while await reader.read(1_000_000):
                    pass
        writer.close()
    assert "ASGI callable" not in caplog.text


async def test_metrics(at: Running) -> None:
    session_id = await new_session(at)
    await append(at, session_id, 1)
    await append(at, session_id, 1, transient=True)
    text = at.replica.metrics.render()[0].decode()
    for line in (
        'event_log_appends_total{result="ok"} 1.0',
        'event_log_appends_total{result="transient"} 1.0',
        'event_log_appends_total{result="unlogged"} 0.0',
        "event_log_breaker_state 0.0",
        'event_publish_dropped_total{reason="in_flight"} 0.0',
    ):
        assert line in text


# -- SSE ---------------------------------------------------------------------------------------------------
async def test_sse_resumes_by_last_event_id(at: Running) -> None:
    session_id = await new_session(at)
    ids = [(await append(at, session_id, n))["id"] for n in range(3)]
    async with sse(at, session_id) as events:
        at_id, ready = await events.next()
        assert ready["type"] == "ws_ready"
        assert at_id == f"{ready['epoch']}:{ids[2]}:3"
        await append(at, session_id, "live")
        live_id, live = await events.next()
        assert live_id == f"{ready['epoch']}:{live['id']}:4"
        await append(at, session_id, "delta", transient=True)
        assert (await events.next())[0] is None
    async with sse(at, session_id, **{"Last-Event-ID": f"{ready['epoch']}:{ids[1]}:2"}) as events:
        got = [await events.next() for _ in range(4)]
        assert [f["type"] for _, f in got] == ["ws_ready", "event", "event", "replay_done"]
        assert [id is None for id, _ in got] == [True, False, False, True]
        assert [f["event"]["data"] for _, f in got[1:3]] == [2, "live"]
    async with sse(at, session_id, "?after=0-0") as events:
        assert [(await events.next())[1].get("seq") for _ in range(5)] == [None, 1, 2, 3, 4]
    async with sse(at, session_id, **{"Last-Event-ID": "junk"}) as events:
        await events.next()
        assert (await events.next())[1]["reason"] == "invalid"


async def test_sse_ids_only_rise_while_others_append(at: Running, until: Until) -> None:
    session_id = await new_session(at)
    log = at.replica.event_log
    for n in range(100):
        await log.append(session_id, "t", n)

    async def go_on() -> None:
        for n in range(100, 180):
            await log.append(session_id, "t", n)
            await asyncio.sleep(0.001)

    going = asyncio.create_task(go_on())
    async with sse(at, session_id, "?after=0-0") as events:
        seqs: list[int] = []
        while not seqs or seqs[-1] < 180:
            found = (await events.next())[1].get("seq")
            seqs += [found] if found is not None else []
    await going
    assert seqs == list(range(1, 181))
    await until(lambda: not log.connections)


# -- Socket.IO ---------------------------------------------------------------------------------------------
async def test_socketio_subscribes(at: Running, until: Until) -> None:
    session_id = await new_session(at)
    ids = [(await append(at, session_id, n))["id"] for n in range(3)]
    async with Client(at) as client:
        assert await client.ack("subscribe", {"sessionId": session_id}) == {"ok": True}
        await until(lambda: client.of("session-event"))
        ready = client.of("session-event")[0]
        assert (ready["type"], ready["sessionId"], ready["lastSeq"]) == ("ws_ready", session_id, 3)
        await append(at, session_id, "live")
        await until(lambda: len(client.of("session-event")) == 2)
        live = client.of("session-event")[1]
        assert (live["sessionId"], live["seq"], live["event"]["data"]) == (session_id, 4, "live")
        assert await client.ack("unsubscribe", {"sessionId": session_id}) == {"ok": True}
        assert not at.replica.event_log.live.groups
        resume = {"sessionId": session_id, "lastEventId": ids[0], "lastSeq": 1, "epoch": ready["epoch"]}
        assert await client.ack("subscribe", resume) == {"ok": True}
        await until(lambda: client.of("session-event")[-1]["type"] == "replay_done")
        frames = client.of("session-event")[2:]
        assert [f.get("seq") for f in frames] == [None, 2, 3, 4, None]
        again = await client.ack("subscribe", {"sessionId": session_id, "lastEventId": 5})
        assert again == {"ok": True}
        await until(lambda: client.of("session-event")[-1].get("reason") == "invalid")
        assert len(at.replica.event_log.live.groups[session_id].readers) == 1
    await until(lambda: not at.replica.event_log.live.groups)
    assert not at.replica.reading.subscriptions._by_sid


async def test_socketio_refuses(at: Running) -> None:
    session_id = await new_session(at)
    async with Client(at, "other") as client:
        assert await client.ack("subscribe", {"sessionId": session_id}) == {
            "ok": False, "error": "Session not found",
        }  # fmt: skip
        for junk in (None, 5, {}, {"sessionId": 5}, {"sessionId": ""}):
            assert (await client.ack("subscribe", junk))["error"] == "Invalid parameters"
            assert (await client.ack("unsubscribe", junk))["error"] == "Invalid parameters"
        assert await client.ack("unsubscribe", {"sessionId": "never"}) == {"ok": True}
        own = [await new_session(at, "other", f"t{n}") for n in range(3)]
        for mine in own:
            await client.sio.emit("subscribe", {"sessionId": mine})
            await client.sio.emit("unsubscribe", {"sessionId": mine})
        assert await client.ack("subscribe", {"sessionId": own[0]}) == {"ok": True}
        assert set(at.replica.event_log.live.groups) == {own[0]}


# -- the end -----------------------------------------------------------------------------------------------
async def test_deleting_a_session_ends_its_readers_on_every_replica(valkey: Valkey, until: Until) -> None:
    async with replica(valkey.url, "a") as a, replica(valkey.url, "b") as b:
        session_id = await new_session(a)
        await append(a, session_id, 1)
        async with (
            stream(a, session_id) as near,
            stream(b, session_id) as far,
            sse(b, session_id) as events,
            Client(b) as client,
        ):
            for ws in (near, far):
                await frame(ws)
            await events.next()
            await client.ack("subscribe", {"sessionId": session_id})
            async with http(a) as caller:
                assert (await caller.delete(f"/v1/sessions/{session_id}")).status_code == 200
            assert await closed(near) == 4404
            assert await closed(far) == 4404
            with pytest.raises(EOFError):
                await events.next()
            await until(lambda: [f["type"] for f in client.of("session-event")][-1:] == ["closed"])
            assert client.of("session-event")[-1] == {"type": "closed", "code": 4404, "sessionId": session_id}
            await until(lambda: not b.replica.event_log.live.groups)
        assert not valkey.client.exists(f"moorage:events:{{{session_id}}}")


async def test_a_drain_leads_readers_away(at: Running) -> None:
    session_id = await new_session(at)
    async with stream(at, session_id) as ws, sse(at, session_id) as events:
        await frame(ws)
        await events.next()
        draining = asyncio.create_task(at.replica.drain())
        assert await closed(ws) in (1001, 1012)
        with pytest.raises(EOFError):
            await events.next()
        await draining
        async with stream(at, session_id) as late:
            assert await closed(late) in (1001, 1012)
