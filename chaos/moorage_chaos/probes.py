"""Ask for the rest of a log after a given place, once, by each way to read it: what comes until it is settled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import aiohttp

from moorage_chaos.accounts import Account
from moorage_chaos.clients import Clients

SETTLED_S = 5.0
"""Until ``replay_done`` or ``replay_gap``; both take milliseconds."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a client says it is. ``seq`` and ``epoch`` None: not named."""

    id: str
    seq: int | None = None
    epoch: str | None = None

    def query(self, name: str) -> dict[str, str]:
        more = {"last_seq": self.seq, "epoch": self.epoch}
        return {name: self.id, **{key: str(value) for key, value in more.items() if value is not None}}


async def by_websocket(
    clients: Clients, account: Account, session: str, place: Place
) -> list[dict[str, Any]]:
    """Frames until the log is settled. Raises TimeoutError, ConnectionError."""
    headers = {"Authorization": f"Bearer {await clients.token(account)}"}
    url = f"{clients.front()}/v1/sessions/{session}/stream?{urlencode(place.query('last_event_id'))}"
    async with aiohttp.ClientSession() as http, http.ws_connect(url, headers=headers) as ws:

        async def frames() -> AsyncIterator[dict[str, Any]]:
            async for message in ws:
                yield json.loads(message.data)

        return await _until_settled(frames())


async def by_sse(clients: Clients, account: Account, session: str, place: Place) -> list[dict[str, Any]]:
    """The same over server-sent events. Its ids carry epoch and seq, where they are known."""
    parts = [place.epoch, place.id, place.seq]
    known = place.epoch is not None and place.seq is not None
    headers = {
        "Authorization": f"Bearer {await clients.token(account)}",
        "Accept": "text/event-stream",
        "Last-Event-ID": ":".join(map(str, parts)) if known else place.id,
    }
    url = f"{clients.front()}/v1/sessions/{session}/events"
    async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as answer:

        async def frames() -> AsyncIterator[dict[str, Any]]:
            async for line in answer.content:
                if line.startswith(b"data:"):
                    yield json.loads(line[5:])

        return await _until_settled(frames())


async def by_socketio(clients: Clients, account: Account, session: str, place: Place) -> list[dict[str, Any]]:
    """The same by ``subscribe`` on a Socket.IO connection."""
    client = await clients.client(account, "subscriber").connect()
    more = {"lastSeq": place.seq, "epoch": place.epoch}
    payload = {"sessionId": session, "lastEventId": place.id}
    client.send("subscribe", payload | {key: value for key, value in more.items() if value is not None})

    async def frames() -> AsyncIterator[dict[str, Any]]:
        seen = 0
        while True:
            for event, body in client.received[seen:]:
                seen += 1
                if event == "session-event":
                    yield body
            await asyncio.sleep(0.005)

    try:
        return await _until_settled(frames())
    finally:
        await client.close()


async def by_page(clients: Clients, account: Account, session: str, place: Place) -> list[dict[str, Any]]:
    """The first page over HTTP, as frames: its events, then the gap or ``replay_done``."""
    path = f"/v1/sessions/{session}/events?{urlencode(place.query('after'))}"
    status, body = await clients.request("GET", path, account=account)
    if status != 200 or not isinstance(body, dict):
        raise ConnectionError(f"GET {path} answered {status} {body!r}")
    return [*body["events"], body.get("gap") or {"type": "replay_done"}]


Probe = Callable[[Clients, Account, str, Place], Awaitable[list[dict[str, Any]]]]
WAYS: dict[str, Probe] = {
    "websocket": by_websocket,
    "sse": by_sse,
    "socketio": by_socketio,
    "page": by_page,
}


async def _until_settled(frames: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(SETTLED_S), aclosing(frames) as source:  # type: ignore[type-var]
        async for frame in source:
            found.append(frame)
            if frame.get("type") in ("replay_done", "replay_gap"):
                return found
    raise ConnectionError(f"ended before the log was settled, after {[f.get('type') for f in found]}")


async def ask(clients: Clients, account: Account, session: str, place: Place, **tags: Any) -> None:
    """Operation ``resume-from`` by every way: how many events came before the end, and what the end was.

    A page is asked for by an id alone, so it is left out where more is named. Header fields have no blanks around them,
    so an id with some is not asked for by one.
    """
    for way, probe in WAYS.items():
        if (way == "page" and place.seq is not None) or (way == "sse" and place.id != place.id.strip()):
            continue
        value: dict[str, Any] = {
            "way": way,
            "session": session,
            "id": place.id,
            "seq": place.seq,
            "epoch": place.epoch,
        }
        operation = clients.history.begin("resume-from", **value, **tags)
        try:
            frames = await probe(clients, account, session, place)
        except (ConnectionError, TimeoutError, aiohttp.ClientError, ValueError) as error:
            operation.info(error=f"{type(error).__name__}: {error}")
            continue
        end = frames[-1]
        events = sum(frame.get("type") == "event" for frame in frames)
        operation.ok(
            events=events,
            end=end.get("type"),
            reason=end.get("reason"),
            missed=end.get("missed"),
            oldest=end.get("oldest"),
        )
